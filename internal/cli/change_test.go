package cli

import (
	"reflect"
	"testing"

	"github.com/hutch-sh/hutch/runtime/api"
)

func TestParseChange(t *testing.T) {
	var got api.ConfigChanges
	for _, s := range []string{
		`CMD ["sh", "-c", "a b"]`, `entrypoint /bin/app --flag`, "ENV A=b=c d", `ENV Q="a b"`, "LABEL x=",
		"EXPOSE 80 53/udp",
		"VOLUME /data /cache", `VOLUME ["/a b"]`, "STOPSIGNAL SIGINT", "USER app:app", "WORKDIR /srv",
	} {
		if err := ParseChange(s, &got); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	want := api.ConfigChanges{
		Cmd: []string{"sh", "-c", "a b"}, Entrypoint: []string{"/bin/sh", "-c", "/bin/app --flag"},
		Env: map[string]string{"A": "b=c d", "Q": "a b"}, Labels: map[string]string{"x": ""},
		ExposedPorts: []string{"80/tcp", "53/udp"}, Volumes: []string{"/data", "/cache", "/a b"},
		StopSignal: "SIGINT", User: "app:app", WorkingDir: "/srv",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	for _, s := range []string{"", "CMD", "RUN x", "CMD [1]", "ENV A", "ENV A B=c", "LABEL =x", "VOLUME [1"} {
		if err := ParseChange(s, &got); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
	// An empty list clears.
	var cleared api.ConfigChanges
	if err := ParseChange("CMD []", &cleared); err != nil || cleared.Cmd == nil || len(cleared.Cmd) != 0 {
		t.Errorf("%#v, %v", cleared.Cmd, err)
	}
}
