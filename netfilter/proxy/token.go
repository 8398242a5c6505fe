package proxy

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// tokenCookie begins the name of the cookie that holds a port's token, tokenQuery is that of the query's parameter.
	tokenCookie = "hutch_token_"
	tokenQuery  = "token"
	// maxTokenHead bounds the head of the request that must show the token, tokenTime what it may take to come.
	maxTokenHead = 16 << 10
	tokenTime    = 10 * time.Second
)

// askToken reads the head of the first request and says whether it has the token. What was read goes to the server, as
// it stands. A browser that has followed a link with the token gets it as a cookie, for the requests that come next.
func (f *inboundFlow) askToken() (head []byte, ok bool) {
	_ = f.client.SetReadDeadline(time.Now().Add(tokenTime))
	head, err := readHead(f.client.Read)
	if err != nil {
		f.answer(400, "Bad Request", "this port takes HTTP requests with its token: "+err.Error())
		return nil, false
	}
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		f.answer(400, "Bad Request", "this port takes HTTP/1 requests with its token")
		return nil, false
	}
	switch where, ok := f.in.hasToken(req); {
	case !ok:
		f.answer(401, "Unauthorized", "this port wants its token: Authorization: Bearer TOKEN, or ?"+tokenQuery+
			"=TOKEN; hutch port ls shows it", `WWW-Authenticate: Bearer realm="hutch"`)
		return nil, false
	case where == inQuery && (req.Method == http.MethodGet || req.Method == http.MethodHead) &&
		req.Header.Get("Upgrade") == "":
		f.answer(303, "See Other", "", "Set-Cookie: "+f.in.cookie()+"="+f.in.token+"; Path=/; HttpOnly; SameSite=Lax",
			"Location: "+withoutToken(req.URL))
		return nil, false
	}
	_ = f.client.SetReadDeadline(noDeadline)
	return head, true
}

// readHead reads until the head of a request has come, and perhaps more.
func readHead(read func([]byte) (int, error)) ([]byte, error) {
	buf := make([]byte, 0, 2048)
	for {
		if len(buf) == cap(buf) {
			if len(buf) >= maxTokenHead {
				return nil, fmt.Errorf("its head has more than %d bytes", maxTokenHead)
			}
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := read(buf[len(buf):cap(buf)])
		from := max(0, len(buf)-3)
		buf = buf[:len(buf)+n]
		if bytes.Contains(buf[from:], []byte("\r\n\r\n")) {
			return buf, nil
		}
		if err != nil {
			return nil, fmt.Errorf("its head does not come: %w", err)
		}
	}
}

// Where a request has the token.
const (
	inHeader = iota
	inCookie
	inQuery
)

func (in *Inbound) hasToken(req *http.Request) (where int, ok bool) {
	same := func(s string) bool { return subtle.ConstantTimeCompare([]byte(s), []byte(in.token)) == 1 }
	if kind, token, _ := strings.Cut(req.Header.Get("Authorization"), " "); strings.EqualFold(kind, "Bearer") &&
		same(token) {
		return inHeader, true
	}
	for _, c := range req.CookiesNamed(in.cookie()) {
		if same(c.Value) {
			return inCookie, true
		}
	}
	if same(req.URL.Query().Get(tokenQuery)) {
		return inQuery, true
	}
	return 0, false
}

// cookie is the name of the cookie, another one for each port: browsers send those of an address to all of its ports.
func (in *Inbound) cookie() string {
	sum := sha256.Sum256([]byte(in.token))
	return tokenCookie + hex.EncodeToString(sum[:4])
}

// withoutToken is where a browser goes on: the same path here, never another host, whatever the request says.
func withoutToken(u *url.URL) string {
	q := u.Query()
	q.Del(tokenQuery)
	next := url.URL{Path: "/" + strings.TrimLeft(u.Path, "/\\"), RawQuery: q.Encode()}
	return next.String()
}

// answer is an answer of hutch's own, after which the connection ends.
func (f *inboundFlow) answer(code int, status, text string, header ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\nCache-Control: no-store\r\n", code, status, len(text))
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	b.WriteString("\r\n" + text)
	_ = f.client.SetWriteDeadline(time.Now().Add(tokenTime))
	if _, err := f.client.Write([]byte(b.String())); err == nil {
		_ = f.client.CloseWrite()
	}
}
