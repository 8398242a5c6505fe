package rest

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	"github.com/hutch-sh/hutch/runtime/api"
)

// readAll reads a body of at most limit bytes.
func readAll(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, io.NopCloser(slowReader{r, http.NewResponseController(w)}), limit))
}

func writeJSON(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v) // the client is gone, or hears of it
}

// whole reads a number of a path.
func whole(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, api.Errorf(api.InvalidArgument, "%q is no number", text).WithHint("give the number of a port")
	}
	return n, nil
}
