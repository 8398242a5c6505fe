package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/hutch-sh/hutch/internal/become"
	"github.com/hutch-sh/hutch/internal/version"
	"github.com/hutch-sh/hutch/internal/webapi"
)

// noticeTimeout bounds a notice, answer included.
const noticeTimeout = 10 * time.Second

// notice posts what `hutch agent --notify URL` has to say. The URL is the user's own word, and may lead to this machine.
// Nobody else's is followed: no redirect.
func notice(ctx context.Context) error {
	var n webapi.Notice
	if err := become.Config(webapi.NoticeVariable, "hutch agent --notify", &n); err != nil {
		return err
	}
	return post(ctx, &n, noticeTimeout)
}

func post(ctx context.Context, n *webapi.Notice, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.URL, bytes.NewReader(n.Body))
	if err != nil {
		return withoutURL(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "hutch/"+version.BuildID)
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	if err != nil {
		return withoutURL(err)
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // enough for the connection to end well
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the server answers %s", resp.Status)
	}
	return nil
}

// withoutURL is an error without the URL, which may hold a token.
func withoutURL(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
