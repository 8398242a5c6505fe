package mustrun

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	list, err := Parse(strings.NewReader(`
# why
^integration\.TestRun($|/)
^integration\.TestRange$ root subuid
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		kind Kind
		test string
		want bool
	}{
		{NoSubUID, "integration.TestRun", true},
		{NoSubUID, "integration.TestRun/exit", true},
		{NoSubUID, "integration.TestRunner", false},
		{SubUID, "integration.TestRange", true},
		{NoSubUID, "integration.TestRange", false},
	} {
		if got := list.Names(tt.kind, tt.test); got != tt.want {
			t.Errorf("Names(%s, %s) = %v, want %v", tt.kind, tt.test, got, tt.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for in, want := range map[string]string{
		"(":            "line 1: ",
		"\n^a$ wizard": `line 2: unknown kind of user "wizard"`,
	} {
		if _, err := Parse(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, want an error with %q", in, err, want)
		}
	}
}

// TestRepositoryList keeps the real list readable.
func TestRepositoryList(t *testing.T) {
	list, err := ReadFile("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		t.Error("the list is empty")
	}
}
