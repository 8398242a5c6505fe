package life_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
)

// must is what a stopped sandbox has to be for a method.
const must = "hutch start"

// stoppedCalls are all methods that take a sandbox, with their other params, and what they do with a stopped one: must
// is an error that says so, else this is a part of the reply, or of what is wrong in another way.
var stoppedCalls = map[string][2]string{
	"audit.head":         {`{}`, `"hash"`},
	"audit.read":         {`{}`, `"sandbox.stop"`},
	"audit.verify":       {`{}`, `"ok": true`},
	"checkpoint.list":    {`{}`, `keeps no checkpoints`},
	"checkpoint.restore": {`{}`, `keeps no checkpoints`},
	"exec.decide":        {`{"argv":["true"]}`, `"decision": "sandbox"`},
	"code.contexts":      {`{}`, `"contexts": []`},
	"code.end_context":   {`{"context":"c"}`, `no context "c"`},
	"code.run":           {`{"language":"shell","code":"true"}`, must},
	"events.subscribe":   {`{}`, `"subscription"`},
	"exec.list":          {`{}`, `"execs": []`},
	"exec.run":           {`{"argv":["true"]}`, must},
	"exec.start":         {`{"argv":["true"]}`, must},
	"fs.list":            {`{"path":"/"}`, must},
	"fs.mkdir":           {`{"path":"/x"}`, must},
	"fs.move":            {`{"path":"/x","to":"/y"}`, must},
	"fs.pack":            {`{"path":"/x","fd":0}`, `fd index 0`}, // with a pipe as fs.read
	"fs.read":            {`{"path":"/x"}`, must},
	"fs.remove":          {`{"path":"/x"}`, must},
	"fs.stat":            {`{"path":"/x"}`, must},
	"fs.sync":            {`{"path":"/x","files":[]}`, must},
	"fs.unpack":          {`{"path":"/x","fd":0}`, `fd index 0`}, // with a pipe as fs.read
	"fs.write":           {`{"path":"/x"}`, must},
	"image.commit":       {`{"ref":"stopped/calls:1"}`, `the image below is not made of layers`},
	"network.check":      {`{"name":"example.org","port":80}`, `no entry of allow`},
	"network.get":        {`{}`, `"example.com"`},
	"network.update":     {`{"add":{"allow":["example.org"]}}`, must},
	"pool.release":       {`{}`, `is of no pool`},
	"port.close":         {`{"port":80}`, `is not reached from the host`},
	"port.expose":        {`{"port":80}`, must},
	"port.list":          {`{}`, `"ports": []`},
	"sandbox.claim":      {`{}`, `is not waiting for its owner`},
	"sandbox.fork":       {`{}`, `"sandboxes"`},
	"sandbox.get":        {`{}`, `"state": "stopped"`},
	"sandbox.kill":       {`{}`, `"killed": []`},
	"sandbox.pause":      {`{}`, must},
	"sandbox.processes":  {`{}`, must},
	"sandbox.remove":     {`{}`, `"killed": []`},
	"sandbox.resume":     {`{}`, must},
	"sandbox.start":      {`{}`, `"state": "running"`},
	"sandbox.stats":      {`{}`, must},
	"sandbox.stop":       {`{}`, `"state": "stopped"`},
	"sandbox.update":     {`{"limits":{"pids":100}}`, must},
	"shell.list":         {`{}`, `"shells": []`},
	"shell.open":         {`{}`, must},
	"snapshot.create":    {`{}`, `"id": "sn_`},
	"snapshot.list":      {`{}`, `"snapshots"`},
	"tools.call":         {`{"name":"sandbox_list_directory","arguments":{"path":"/"}}`, must},
	"workspace.apply":    {`{}`, must},
	"workspace.diff":     {`{}`, must},
	"workspace.discard":  {`{}`, must},
}

// takesSandbox says that a method's params name a sandbox.
func takesSandbox(params any) bool {
	var has func(typ reflect.Type) bool
	has = func(typ reflect.Type) bool {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name == "sandbox" &&
				f.Type.Kind() == reflect.String || f.Anonymous && f.Type.Kind() == reflect.Struct && has(f.Type) {
				return true
			}
		}
		return false
	}
	typ := reflect.TypeOf(params)
	return typ != nil && typ.Kind() == reflect.Struct && has(typ)
}

// TestStoppedCalls: each method that takes a sandbox knows what to do with one that is stopped, or says that it is to
// be started.
func TestStoppedCalls(t *testing.T) {
	testenv.Axes(t, testenv.Privilege)
	t.Parallel()
	w := world.New(t)
	var names []string
	for _, m := range api.Methods {
		if takesSandbox(m.Params) {
			names = append(names, m.Name)
		}
	}
	if known := slices.Sorted(maps.Keys(stoppedCalls)); !slices.Equal(known, slices.Sorted(slices.Values(names))) {
		t.Errorf("methods that take a sandbox:\n%q\nknown are\n%q", slices.Sorted(slices.Values(names)), known)
	}
	dir := w.Sub(t, "ws")
	for _, name := range names {
		args := []string{"--allow", "example.com"}
		if strings.HasPrefix(name, "workspace.") { // which root's client has to hand over at a start
			args = append(args, "--workspace", dir+":overlay")
		}
		sb := w.Create(t, append(args, "host")...)
		w.OK(t, "stop", "-t", "0", sb)
		params := map[string]any{"sandbox": sb}
		if err := json.Unmarshal([]byte(stoppedCalls[name][0]), &params); err != nil {
			t.Fatal(err)
		}
		data, _ := json.Marshal(params)
		r := w.Run(t, "rpc", name, string(data))
		if want := stoppedCalls[name][1]; !strings.Contains(r.Stdout+r.Stderr, want) || want == must &&
			name != "tools.call" && r.Code != 125 {
			t.Errorf("%s %s: exit code %d, want %q:\n%s%s", name, data, r.Code, want, r.Stdout, r.Stderr)
		}
		w.Run(t, "rm", "-f", sb)
	}
	for _, sb := range strings.Fields(w.OK(t, "ps", "-aq")) { // forks
		w.Run(t, "rm", "-f", sb)
	}
}
