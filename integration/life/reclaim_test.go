package life_test

import (
	"encoding/json"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
	"github.com/hutch-sh/hutch/runtime/api"
	hutch "github.com/hutch-sh/hutch/runtime/client"
)

// reclaimable says whether the kernel takes memory of this sandbox back when it is told to: its memory controller is
// cgroup v2's, since Linux 5.19.
func reclaimable(rec api.Sandbox) bool {
	for _, line := range world.Lines("/proc/" + strconv.Itoa(rec.PID) + "/cgroup") {
		if group, ok := strings.CutPrefix(line, "0::"); ok { // PID 1 is in a child of the sandbox's
			_, err := os.Stat(path.Join("/sys/fs/cgroup", path.Dir(group), "memory.reclaim"))
			return err == nil
		}
	}
	return false
}

// cached makes a sandbox with a file of so many MiB, all of it on the disk and in memory: in a volume, because a
// sandbox's own files are not written to the disk when it wants that, but when the kernel does.
func cached(t testing.TB, c *hutch.Client, mib int, volume string) api.Sandbox {
	t.Helper()
	rec, err := c.CreateSandbox(t.Context(), api.CreateParams{Spec: api.Spec{
		Image: "host", Mounts: []api.Mount{{Volume: volume, Target: "/v", Mode: api.ModeRW}},
	}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res := world.Ran(t, c, rec.ID, "head -c "+strconv.Itoa(mib)+
		"M /dev/zero >/v/file && sync /v/file && cksum </v/file"); res.ExitCode != 0 {
		t.Fatalf("%+v", res)
	}
	return rec
}

// usedMemory is what a sandbox uses, in bytes.
func usedMemory(t testing.TB, c *hutch.Client, sandbox string) int64 {
	t.Helper()
	st, err := c.Stats(t.Context(), sandbox)
	if err != nil || st.Memory == nil {
		t.Fatalf("%+v, %v", st, err)
	}
	return st.Memory.CurrentBytes
}

// reclaimedOf is what an event says was taken back.
func reclaimedOf(t testing.TB, events *hutch.Events) int64 {
	t.Helper()
	var e api.ReclaimedEvent
	if err := json.Unmarshal(world.NextOf(t, events, api.EventReclaimed).Data, &e); err != nil {
		t.Fatal(err)
	}
	return e.Bytes
}

func follow(t testing.TB, c *hutch.Client, sandbox string) *hutch.Events {
	t.Helper()
	events, err := c.Subscribe(t.Context(),
		api.SubscribeParams{Sandbox: sandbox, Kinds: []api.EventKind{api.EventReclaimed}})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// TestReclaim: a pause gives the page cache of a sandbox back to the machine, and says how much. Files are what they
// were.
func TestReclaim(t *testing.T) {
	testenv.Axes(t, testenv.Privilege, testenv.Kernel)
	t.Parallel()
	w := world.New(t)
	w.LogOnFailure(t)
	c := w.Connect(t)
	const mib = 48
	rec := cached(t, c, mib, "v")
	if !reclaimable(rec) {
		if strings.HasPrefix(os.Getenv(testenv.KindVar), "vm-") {
			t.Fatal("a machine with cgroup v2 and no memory.reclaim")
		}
		// Nothing is said of what was not done.
		for range 2 {
			if got, err := c.Pause(t.Context(), rec.ID); err != nil || got.Paused == nil ||
				got.Paused.ReclaimedBytes != nil {
				t.Errorf("%+v, %v", got, err)
			}
		}
		w.OK(t, "rm", "-f", rec.ID)
		return
	}
	events := follow(t, c, rec.ID)
	before := usedMemory(t, c, rec.ID)
	if before < mib<<20 {
		t.Fatalf("it uses %d bytes", before)
	}
	paused, err := c.Pause(t.Context(), rec.ID)
	if err != nil || paused.State != api.Paused {
		t.Fatalf("%+v, %v", paused, err)
	}
	told := reclaimedOf(t, events)
	now := usedMemory(t, c, rec.ID)
	t.Logf("%d bytes, then %d; told about %d", before, now, told)
	if now > before-(mib-4)<<20 || told < (mib-4)<<20 || told > before {
		t.Errorf("%d bytes, then %d; told about %d", before, now, told)
	}
	if got, err := c.GetSandbox(t.Context(), rec.ID); err != nil || got.Paused == nil ||
		got.Paused.ReclaimedBytes == nil || *got.Paused.ReclaimedBytes != told {
		t.Errorf("%+v, %v", got.Paused, err)
	}
	world.Kill(t, w.Daemon(t).Hutchd) // what is on record outlives it
	c = w.Reconnect(t)
	if got, err := c.GetSandbox(t.Context(), rec.ID); err != nil || got.Paused == nil ||
		got.Paused.ReclaimedBytes == nil || *got.Paused.ReclaimedBytes != told {
		t.Errorf("%+v, %v", got.Paused, err)
	}
	if res := world.Ran(t, c, rec.ID, "head -c "+strconv.Itoa(mib)+"M /dev/zero | cmp - /v/file"); res.ExitCode != 0 {
		t.Errorf("%+v", res)
	}
	if got, err := c.GetSandbox(t.Context(), rec.ID); err != nil || got.Paused != nil {
		t.Errorf("%+v, %v", got.Paused, err)
	}
	w.OK(t, "rm", "-f", rec.ID)
}

// TestReclaimMiddle: a sandbox whose memory is being taken back goes on, is removed and survives the death of hutchd at
// any moment of that.
func TestReclaimMiddle(t *testing.T) {
	testenv.Axes(t, testenv.Kernel)
	w := world.New(t)
	w.LogOnFailure(t)
	c := w.Connect(t)
	rec := cached(t, c, 48, "v")
	can := reclaimable(rec)
	again := func() { // in memory once more, and as it was
		t.Helper()
		if res := world.Ran(t, c, rec.ID, "head -c 48M /dev/zero | cmp - /v/file"); res.ExitCode != 0 {
			t.Fatalf("%+v", res)
		}
	}
	for range world.Rounds(60) {
		if _, err := c.Pause(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		testenv.RandomMoment(world.RunTime)
		start := time.Now()
		if got, err := c.Resume(t.Context(), rec.ID); err != nil || got.State != api.Running || got.Paused != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		t.Logf("resumed within %v", time.Since(start))
		again()
	}
	for i := range world.Rounds(60) {
		if _, err := c.Pause(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		testenv.RandomMoment(world.RunTime)
		for _, pid := range world.Victims[i%len(world.Victims)].PIDs(w.Daemon(t)) {
			world.Kill(t, pid)
		}
		c = w.Reconnect(t)
		got, err := c.GetSandbox(t.Context(), rec.ID)
		if err != nil || got.State != api.Paused {
			t.Fatalf("%+v, %v", got, err)
		}
		if can && i%2 == 0 { // the next hutchd does it, if the one before did not
			for events := follow(t, c, rec.ID); got.Paused.ReclaimedBytes == nil; {
				if got, err = c.GetSandbox(t.Context(), rec.ID); err != nil {
					t.Fatal(err)
				}
				if got.Paused.ReclaimedBytes == nil {
					reclaimedOf(t, events)
				}
			}
		}
		again()
	}
	for i := range world.Rounds(40) {
		if _, err := c.Pause(t.Context(), rec.ID); err != nil {
			t.Fatal(err)
		}
		testenv.RandomMoment(world.RunTime)
		if i%2 == 0 {
			w.OK(t, "rm", "-f", rec.ID)
		} else {
			w.OK(t, "stop", rec.ID)
			w.OK(t, "rm", rec.ID)
		}
		rec = cached(t, c, 16, "v")
	}
	if _, err := c.Pause(t.Context(), rec.ID); err != nil {
		t.Fatal(err)
	}
	w.Shutdown() // in the middle of it
}

// TestReclaimCrowd: many sandboxes are paused, go on, are stopped and removed at once, while commands run in others and
// sandboxes come and go: nobody waits for ever for anybody.
func TestReclaimCrowd(t *testing.T) {
	testenv.Axes(t, testenv.Cgroup)
	testenv.Suite(t, "many")
	w := world.New(t)
	w.LogOnFailure(t)
	c := w.Connect(t)
	const crowd = 32
	boxes := make([]string, crowd)
	var wg sync.WaitGroup
	for i := range boxes {
		wg.Go(func() { boxes[i] = cached(t, c, 16, "v"+strconv.Itoa(i)).ID })
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // somebody else
		defer close(ended)
		slowest, n := time.Duration(0), 0
		for {
			select {
			case <-end:
				t.Logf("%d others came and went meanwhile, the slowest took %v", n, slowest)
				return
			default:
			}
			start := time.Now()
			if r := w.Run(t, "run", "host", "--", "true"); r.Code != 0 {
				t.Errorf("%+v", r)
			}
			slowest, n = max(slowest, time.Since(start)), n+1
		}
	}()
	start := time.Now()
	for i, sb := range boxes {
		wg.Go(func() {
			for range 3 {
				if _, err := c.Pause(t.Context(), sb); err != nil {
					t.Errorf("pause: %v", err)
				}
				if _, err := c.Resume(t.Context(), sb); err != nil {
					t.Errorf("resume: %v", err)
				}
			}
			if _, err := c.Pause(t.Context(), sb); err != nil {
				t.Errorf("pause: %v", err)
			}
			switch i % 4 {
			case 0:
				w.OK(t, "stop", sb)
			case 1:
				if res, err := c.ExecRun(t.Context(),
					api.ExecParams{Sandbox: sb, Command: "head -c 16M /dev/zero | cmp - /v/file"}, nil,
					nil); err != nil || res.ExitCode != 0 {
					t.Errorf("%+v, %v", res, err)
				}
			}
			if _, err := c.Remove(t.Context(), sb); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d sandboxes took %v", crowd, time.Since(start))
	close(end)
	<-ended
}
