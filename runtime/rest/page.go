package rest

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Lists come in pages. The token of the next one is in a header, as E2B has it, and in the Link of RFC 8288.
const (
	nextHeader = "X-Next-Token"
	maxPage    = 1000
	pageSize   = 100 // unless the request says it
)

var (
	limitQuery = parameter{name: "limit", kind: "integer", doc: "most of them in one answer; default 100", least: 1,
		most: maxPage}
	nextQuery = parameter{name: "nextToken", kind: "string",
		doc:     "the X-Next-Token of the page before: the answer is what comes after that",
		pattern: "^([A-Za-z0-9_-]{4})*([A-Za-z0-9_-]{2,3})?$"} // base64url
	pageQuery = []parameter{limitQuery, nextQuery}
)

// Paged is the page of a list that a request asks for, in the order of times and ids. The token of the next page names
// the last of this one: what has come and gone meanwhile shifts nothing.
func Paged[T any](w http.ResponseWriter, r *http.Request, all []T, rising bool,
	key func(*T) (time.Time, string)) ([]T, error) {
	text := func(v *T) string { // as long for all, so that it can be compared
		at, id := key(v)
		return strconv.FormatInt(at.UnixNano(), 10) + " " + id
	}
	slices.SortFunc(all, func(a, b T) int {
		n := strings.Compare(text(&a), text(&b))
		if rising {
			return n
		}
		return -n
	})
	limit, last, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	if last != "" {
		all = slices.DeleteFunc(all, func(v T) bool {
			return text(&v) == last || text(&v) < last == rising
		})
	}
	if len(all) > limit {
		all = all[:limit]
		goesOn(w, r, text(&all[limit-1]))
	}
	return all, nil
}

// pageOf is what the query of a request says of the page.
func pageOf(r *http.Request) (limit int, last string, err error) {
	q := r.URL.Query()
	if token := q.Get("nextToken"); token != "" {
		text, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil || len(text) == 0 {
			return 0, "", wrongPage(token)
		}
		last = string(text)
	}
	limit = pageSize
	if given := q.Get("limit"); given != "" {
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 || n > maxPage {
			return 0, "", api.Errorf(api.InvalidArgument, "limit: %.40q is not possible", given).WithField("limit").
				WithHint("use 1 to %d", maxPage)
		}
		limit = n
	}
	return limit, last, nil
}

func wrongPage(token string) error {
	return api.Errorf(api.InvalidArgument, "nextToken: %.100q is none of this server's", token).WithField("nextToken").
		WithHint("send the %s of the page before", nextHeader)
}

// goesOn says where the next page begins.
func goesOn(w http.ResponseWriter, r *http.Request, last string) {
	token := base64.RawURLEncoding.EncodeToString([]byte(last))
	w.Header().Set(nextHeader, token)
	next := *r.URL
	q := next.Query()
	q.Set("nextToken", token)
	next.RawQuery = q.Encode()
	w.Header().Set("Link", "<"+next.RequestURI()+`>; rel="next"`)
}
