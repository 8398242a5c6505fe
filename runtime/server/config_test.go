package server

import (
	"reflect"
	"testing"
)

// TestNewWithout: no server is made without one of its engines, which would be a nil that a call runs into.
func TestNewWithout(t *testing.T) {
	whole := newServer(t, &engines{}).cfg
	fields := reflect.TypeFor[Config]()
	for i := range fields.NumField() {
		if fields.Field(i).Type.Kind() != reflect.Interface {
			continue
		}
		c := whole
		reflect.ValueOf(&c).Elem().Field(i).SetZero()
		if _, err := New(c); err == nil {
			t.Errorf("a server was made without %s", fields.Field(i).Name)
		}
	}
}
