package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
)

// TestOpenAPI: the document describes every path, and each path answers as it says to what cannot be.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	w := world.New(t)
	s := serve(t, w)
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Summary     string
			Responses   map[string]any
		}
	}
	s.ask(t, "GET", "/openapi.json", nil, "Authorization", "").want(http.StatusOK, &doc)
	if doc.OpenAPI != "3.1.0" || len(doc.Paths) < 20 {
		t.Fatalf("%s, %d paths", doc.OpenAPI, len(doc.Paths))
	}
	ids := map[string]bool{}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if op.OperationID == "" || ids[op.OperationID] || op.Summary == "" || op.Responses["default"] == nil {
				t.Errorf("%s %s: %+v", method, path, op)
			}
			ids[op.OperationID] = true
			at := strings.NewReplacer("{sandbox}", "none", "{process}", "ex_none", "{snapshot}", "none", "{port}", "1").
				Replace(path)
			if at != path {
				a := s.ask(t, strings.ToUpper(method), at, nil)
				if a.status < 400 || a.status >= 500 {
					t.Errorf("%s %s: %d: %s", method, at, a.status, a.body)
				}
			}
		}
	}
}
