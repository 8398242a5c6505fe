package rest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/hutch-sh/hutch/runtime/api"
)

// A creation with an Idempotency-Key is found again by labels of the sandbox, so that the key holds for as long as the
// sandbox lives, whatever becomes of this process. What the client sent is there as digests.
const (
	labelPrefix = "hutch.rest."
	labelKey    = labelPrefix + "key"
	labelBody   = labelPrefix + "body"
)

const maxKey = 255

// keys are those of creations under way. The second of two with the same key waits for the first.
type keys struct {
	mu   sync.Mutex
	busy map[string]chan struct{} // closed when it is done
}

// enter waits until nobody else makes something with a key.
func (k *keys) enter(ctx context.Context, key string) (leave func(), err error) {
	for {
		k.mu.Lock()
		other, busy := k.busy[key]
		if !busy {
			break
		}
		k.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer k.mu.Unlock()
	if k.busy == nil {
		k.busy = map[string]chan struct{}{}
	}
	done := make(chan struct{})
	k.busy[key] = done
	return func() {
		k.mu.Lock()
		delete(k.busy, key)
		k.mu.Unlock()
		close(done)
	}, nil
}

// once makes sandboxes, or finds those that a request with the same Idempotency-Key has made and that live still. asked
// is what the client wants, and own are the labels of what is made, which get the key.
func (s *Server) once(r *http.Request, asked any, own map[string]string,
	create func(context.Context) ([]api.Sandbox, error)) (made []api.Sandbox, existing bool, err error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		made, err = create(r.Context())
		return made, false, err
	}
	if len(key) > maxKey || strings.TrimSpace(key) == "" {
		return nil, false, api.Errorf(api.InvalidArgument, "Idempotency-Key has %d characters", len(key)).
			WithField("Idempotency-Key").WithHint("use 1 to %d, such as a UUID", maxKey)
	}
	text, err := json.Marshal([]any{asked, own}) // which have what other shapes ask for
	if err != nil {
		return nil, false, err
	}
	id, digest := sum([]byte(own[labelClient]+"\x00"+key)), sum(text)
	leave, err := s.keys.enter(r.Context(), id)
	if err != nil {
		return nil, false, err
	}
	defer leave()
	there, err := s.Sandboxes(r.Context(), map[string]string{labelKey: id})
	if err != nil {
		return nil, false, err
	}
	if len(there) > 0 {
		if there[0].Labels[labelBody] != digest {
			return nil, false, problem(http.StatusUnprocessableEntity, string(api.InvalidArgument),
				"use another key for it", "this Idempotency-Key belongs to another request, which has made %s", there[0].ID)
		}
		for i := range there {
			there[i].Existing = true
		}
		return there, true, nil
	}
	own[labelKey], own[labelBody] = id, digest
	made, err = create(r.Context())
	return made, false, err
}

func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:16])
}

// publicLabels are those that a client has given.
func publicLabels(labels map[string]string) map[string]string {
	var public map[string]string
	for k, v := range labels {
		if !strings.HasPrefix(k, labelPrefix) {
			if public == nil {
				public = map[string]string{}
			}
			public[k] = v
		}
	}
	return public
}

// labelQuery reads metadata of a query: KEY=VALUE, joined by & and escaped as a query.
func labelQuery(text string) (map[string]string, error) {
	values, err := url.ParseQuery(text)
	if err != nil {
		return nil, api.Errorf(api.InvalidArgument, "metadata: %w", err).WithField("metadata").
			WithHint("write KEY=VALUE, joined by & and escaped as a query")
	}
	labels := map[string]string{}
	for k := range values {
		labels[k] = values.Get(k)
	}
	return labels, nil
}
