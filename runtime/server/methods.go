package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/hutch-sh/hutch/internal/params"
	"github.com/hutch-sh/hutch/runtime/api"
)

// Methods are handlers of methods, for Config. The zero value has none.
type Methods struct {
	table map[string]handler
	wrong []error
}

// handler is one method: strict decoding, then the engine.
type handler struct {
	run            func(ctx context.Context, call *Call, params json.RawMessage) (any, error)
	params, result reflect.Type
	fds, ends      bool // api.Call.FDs and EndsWithCaller
}

// Handle makes f the handler of a method. It is called from many goroutines at once. Its context is cancelled when the
// client cancels its call, and of methods that end with their caller when that is gone; f then undoes what it did and
// returns the context's error. Errors that are not *api.Error reach the client as internal.
func Handle[P, R any](m *Methods, of api.Call[P, R], f func(ctx context.Context, p P) (R, error)) {
	HandleCall(m, of, func(ctx context.Context, _ *Call, p P) (R, error) { return f(ctx, p) })
}

// HandleCall is Handle for what needs to know who calls, or takes fds, or has news.
func HandleCall[P, R any](m *Methods, of api.Call[P, R], f func(ctx context.Context, c *Call, p P) (R, error)) {
	// Made by the first call: most daemons see few methods.
	filler := sync.OnceValue(func() func(reflect.Value) { return filler(reflect.TypeFor[R]()) })
	m.add(of.Name, handler{
		run: func(ctx context.Context, call *Call, raw json.RawMessage) (any, error) {
			var p P
			if err := params.Decode(raw, &p); err != nil {
				return nil, err
			}
			r := new(R)
			var err error
			if *r, err = f(ctx, call, p); err != nil {
				return nil, err
			}
			if fill := filler(); fill != nil {
				fill(reflect.ValueOf(r).Elem())
			}
			return r, nil
		},
		params: reflect.TypeFor[P](), result: reflect.TypeFor[R](), fds: of.FDs, ends: of.EndsWithCaller,
	})
}

// Done makes a handler of what has no result.
func Done[P any](f func(ctx context.Context, p P) error) func(context.Context, P) (api.Empty, error) {
	return func(ctx context.Context, p P) (api.Empty, error) { return api.Empty{}, f(ctx, p) }
}

func (m *Methods) add(name string, h handler) {
	if m.table == nil {
		m.table = make(map[string]handler)
	}
	if _, ok := m.table[name]; ok {
		m.wrong = append(m.wrong, fmt.Errorf("method %s has two handlers", name))
	}
	m.table[name] = h
}

// filler makes lists and maps that are nil empty, which JSON shows as [] and {} and not as null: those that a struct
// always has, and the structs in it. It is nil where there are none.
func filler(t reflect.Type) func(reflect.Value) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var fills []func(reflect.Value)
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			continue
		}
		empty := func() reflect.Value { return reflect.MakeSlice(f.Type, 0, 0) }
		switch f.Type.Kind() {
		case reflect.Struct:
			if deeper := filler(f.Type); deeper != nil {
				fills = append(fills, func(v reflect.Value) { deeper(v.Field(i)) })
			}
			continue
		case reflect.Map:
			empty = func() reflect.Value { return reflect.MakeMap(f.Type) }
		case reflect.Slice:
		default:
			continue
		}
		if f.Type != reflect.TypeFor[json.RawMessage]() && params.Always(f) {
			fills = append(fills, func(v reflect.Value) {
				if v = v.Field(i); v.IsNil() {
					v.Set(empty())
				}
			})
		}
	}
	if fills == nil {
		return nil
	}
	return func(v reflect.Value) {
		for _, fill := range fills {
			fill(v)
		}
	}
}

// check makes sure that the handlers are exactly the methods, with the types that rpc.discover shows.
func (m *Methods) check(methods []api.Method) error {
	wrong := m.wrong
	seen := make(map[string]bool)
	for _, row := range methods {
		h, ok := m.table[row.Name]
		switch {
		case seen[row.Name]:
			wrong = append(wrong, fmt.Errorf("method %s is listed twice", row.Name))
		case !ok:
			wrong = append(wrong, fmt.Errorf("method %s has no handler", row.Name))
		case h.params != reflect.TypeOf(row.Params) || h.result != reflect.TypeOf(row.Result):
			wrong = append(wrong, fmt.Errorf("method %s takes %T and returns %T, its handler %v and %v", row.Name,
				row.Params, row.Result, h.params, h.result))
		}
		seen[row.Name] = true
	}
	for name := range m.table {
		if !seen[name] {
			wrong = append(wrong, fmt.Errorf("handler %s is no method", name))
		}
	}
	return errors.Join(wrong...)
}
