package e2b

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
	"github.com/hutch-sh/hutch/runtime/rest"
)

// timed is a body that names a time in seconds, and of which kind a pause is.
type timed struct {
	Timeout  *float64 `json:"timeout"`
	Duration *float64 `json:"duration"`
	Memory   *bool    `json:"memory"`
	Count    int      `json:"count"`
	Name     string   `json:"name"`
}

// timed decodes the body of a request about a sandbox, and finds that.
func (s control) timed(w http.ResponseWriter, r *http.Request) (*timed, *api.Sandbox, error) {
	var t timed
	if err := decode(w, r, &t); err != nil {
		return nil, nil, err
	}
	for _, v := range []*float64{t.Timeout, t.Duration} {
		if v != nil && (*v < 0 || *v > api.MaxSeconds) {
			return nil, nil, api.Errorf(api.InvalidArgument, "timeout: %g is not possible", *v)
		}
	}
	sb, err := s.found(r)
	return &t, sb, err
}

func (t *timed) seconds() float64 {
	if t.Timeout != nil {
		return *t.Timeout
	}
	return defaultTimeout
}

func (s control) setTimeout(w http.ResponseWriter, r *http.Request) (int, any, error) {
	t, sb, err := s.timed(w, r)
	if err == nil {
		err = s.extend(r.Context(), sb.ID, t.seconds())
	}
	return http.StatusNoContent, nil, err
}

func (s control) refresh(w http.ResponseWriter, r *http.Request) (int, any, error) {
	t, sb, err := s.timed(w, r)
	if err == nil && t.Duration != nil {
		err = s.lengthen(r.Context(), sb, *t.Duration)
	}
	return http.StatusNoContent, nil, err
}

// lengthen has a sandbox live for at least so many seconds from now on.
func (s control) lengthen(ctx context.Context, sb *api.Sandbox, seconds float64) error {
	if sb.Expires == nil || time.Until(*sb.Expires).Seconds() >= seconds {
		return nil
	}
	return s.extend(ctx, sb.ID, seconds)
}

// attach lets a client on to a sandbox, and wakes it where it was paused.
func (s control) attach(w http.ResponseWriter, r *http.Request) (int, any, error) {
	t, sb, err := s.timed(w, r)
	if err != nil {
		return 0, nil, err
	}
	answer := s.sandboxOf(r, sb.ID, templateOf(sb))
	if stateOf(sb) == "running" {
		return http.StatusOK, answer, s.lengthen(r.Context(), sb, t.seconds())
	}
	return http.StatusCreated, answer, s.wake(r.Context(), sb, t)
}

// resume is attach of older SDKs.
func (s control) resume(w http.ResponseWriter, r *http.Request) (int, any, error) {
	t, sb, err := s.timed(w, r)
	if err == nil && stateOf(sb) == "running" {
		err = api.Errorf(api.FailedPrecondition, "sandbox %s is running already", sb.ID)
	}
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, s.sandboxOf(r, sb.ID, templateOf(sb)), s.wake(r.Context(), sb, t)
}

// wake lets a sandbox go on. Without memory its processes are ended, and what is left is its files.
func (s control) wake(ctx context.Context, sb *api.Sandbox, t *timed) (err error) {
	now := 0.0
	if sb.State == api.Paused && t.Memory != nil && !*t.Memory {
		_, err = rest.Do(ctx, s.rest, api.CallSandboxStop, api.StopParams{Sandbox: sb.ID, TimeoutS: &now})
		sb.State = api.Stopped
	}
	switch {
	case err != nil:
		return err
	case sb.State == api.Stopped:
		_, err = rest.Do(ctx, s.rest, api.CallSandboxStart, api.StartParams{Sandbox: sb.ID})
	default:
		_, err = rest.Do(ctx, s.rest, api.CallSandboxResume, api.SandboxParams{Sandbox: sb.ID})
	}
	if err != nil {
		return err
	}
	return s.extend(ctx, sb.ID, t.seconds())
}

// pause stops the processes of a sandbox in their tracks, or without memory ends them. It then has no end of its own.
func (s control) pause(w http.ResponseWriter, r *http.Request) (int, any, error) {
	t, sb, err := s.timed(w, r)
	if err == nil && stateOf(sb) == "paused" {
		err = api.Errorf(api.AlreadyExists, "sandbox %s is paused already", sb.ID)
	}
	if err != nil {
		return 0, nil, err
	}
	if t.Memory != nil && !*t.Memory {
		return http.StatusNoContent, nil, s.suspend(r.Context(), sb)
	}
	_, err = rest.Do(r.Context(), s.rest, api.CallSandboxPause, api.SandboxParams{Sandbox: sb.ID})
	if err == nil { // and not before: one that goes on keeps its end
		err = s.endless(r.Context(), sb.ID)
	}
	return http.StatusNoContent, nil, err
}

// suspend ends the processes of a sandbox. One that is stopped keeps the end that it had, so that is taken away before,
// and given back where it could not be stopped.
func (s control) suspend(ctx context.Context, sb *api.Sandbox) error {
	if err := s.endless(ctx, sb.ID); err != nil {
		return err
	}
	_, err := rest.Do(ctx, s.rest, api.CallSandboxStop, api.StopParams{Sandbox: sb.ID})
	if err != nil && sb.Expires != nil {
		err = errors.Join(err, s.extend(context.WithoutCancel(ctx), sb.ID, time.Until(*sb.Expires).Seconds()))
	}
	return err
}

// forked is one of the forks that were asked for.
type forked struct {
	Sandbox sandbox `json:"sandbox"`
	Hutch   string  `json:"hutch"` // what is not as there
}

func (s control) fork(w http.ResponseWriter, r *http.Request) (int, any, error) {
	t, sb, err := s.timed(w, r)
	if err != nil {
		return 0, nil, err
	}
	made, _, err := s.rest.Fork(r, &rest.Fork{Count: t.Count}, api.ForkParams{Sandbox: sb.ID}, nil)
	if err != nil {
		return 0, nil, err
	}
	all := []forked{}
	for i := range made {
		if err := s.extend(r.Context(), made[i].ID, t.seconds()); err != nil {
			return 0, nil, err
		}
		all = append(all, forked{s.sandboxOf(r, made[i].ID, templateOf(sb)), "files are in it, processes and memory are not"})
	}
	return http.StatusCreated, all, nil
}

// snapshotInfo is a snapshot, of which sandboxes can be made as of a template.
type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
	Hutch      string   `json:"hutch,omitempty"` // what is not as there
}

func snapshotOf(sn *api.Snapshot) snapshotInfo {
	info := snapshotInfo{SnapshotID: sn.ID, Names: []string{}, Hutch: sn.Note}
	if sn.Name != "" {
		info.Names = append(info.Names, sn.Name)
	}
	return info
}

func (s control) snapshot(w http.ResponseWriter, r *http.Request) (int, any, error) {
	t, sb, err := s.timed(w, r)
	if err != nil {
		return 0, nil, err
	}
	sn, err := s.rest.Snapshot(r.Context(), sb.ID, &rest.NewSnapshot{Name: t.Name})
	if err != nil {
		return 0, nil, err
	}
	return http.StatusCreated, snapshotOf(&sn), nil
}

func (s control) snapshots(w http.ResponseWriter, r *http.Request) (int, any, error) {
	q := r.URL.Query()
	all, err := s.rest.Snapshots(r.Context(), q.Get("sandboxID"))
	if err != nil {
		return 0, nil, err
	}
	page, err := rest.Paged(w, r, all, false, func(sn *api.Snapshot) (time.Time, string) { return sn.Created, sn.ID })
	if err != nil {
		return 0, nil, err
	}
	list := []snapshotInfo{}
	for i := range page {
		if name := q.Get("name"); name == "" || page[i].Name == name {
			list = append(list, snapshotOf(&page[i]))
		}
	}
	return http.StatusOK, list, nil
}

// removeSnapshot removes a snapshot by E2B's path for templates. Templates are the user's, and stay.
func (s control) removeSnapshot(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	name := r.PathValue("template")
	all, err := s.rest.Snapshots(r.Context(), "")
	if err != nil {
		return 0, nil, err
	}
	for i := range all {
		if sn := &all[i]; sn.ID == name || sn.Name == name {
			_, err := rest.Do(r.Context(), s.rest, api.CallSnapRemove, api.SnapshotParams{Snapshot: sn.ID})
			return http.StatusNoContent, nil, err
		}
	}
	return 0, nil, api.Errorf(api.NotFound, "no snapshot %q", name)
}

// metric is what a sandbox uses.
type metric struct {
	Timestamp     time.Time `json:"timestamp"`
	TimestampUnix int64     `json:"timestampUnix"`
	CPUCount      int       `json:"cpuCount"`
	CPUUsedPct    float64   `json:"cpuUsedPct"` // on average since it began
	MemUsed       int64     `json:"memUsed"`
	MemTotal      int64     `json:"memTotal"`
	MemCache      int64     `json:"memCache"`
	DiskUsed      int64     `json:"diskUsed"`
	DiskTotal     int64     `json:"diskTotal"`
}

func (s control) metricOf(ctx context.Context, sb *api.Sandbox) (metric, error) {
	st, err := rest.Do(ctx, s.rest, api.CallSandboxStats, api.SandboxParams{Sandbox: sb.ID})
	if err != nil {
		return metric{}, err
	}
	m := metric{Timestamp: st.Time.UTC(), TimestampUnix: st.Time.Unix(), CPUCount: s.listed(sb).CPUCount}
	if age := st.Time.Sub(sb.Created); st.CPU != nil && age > 0 {
		m.CPUUsedPct = 100 * st.CPU.UsedMS / float64(age.Milliseconds()+1)
	}
	if st.Memory != nil {
		m.MemUsed, m.MemTotal, m.MemCache = st.Memory.CurrentBytes, st.Memory.LimitBytes, st.Memory.FileBytes
	}
	if st.Disk != nil {
		m.DiskUsed, m.DiskTotal = st.Disk.UsedBytes, st.Disk.LimitBytes
	}
	return m, nil
}

// metrics is what a sandbox uses now: nothing is kept of before.
func (s control) metrics(_ http.ResponseWriter, r *http.Request) (int, any, error) {
	sb, err := s.found(r)
	if err != nil {
		return 0, nil, err
	}
	from, to, err := span(r.URL.Query())
	if now := time.Now().Unix(); err != nil || sb.State != api.Running || now < from || now > to+metricSlack {
		return http.StatusOK, []metric{}, err
	}
	m, err := s.metricOf(r.Context(), sb)
	return http.StatusOK, []metric{m}, err
}

// metricSlack is how many seconds old a time may be that still is now: clients say a time in whole seconds, and their
// request has taken some.
const metricSlack = 5

// span is the time, in seconds since 1970, of which a query wants to know.
func span(q url.Values) (from, to int64, err error) {
	from, to = 0, math.MaxInt64-metricSlack
	for name, v := range map[string]*int64{"start": &from, "end": &to} {
		if text := q.Get(name); text != "" {
			if *v, err = strconv.ParseInt(text, 10, 64); err != nil || *v < 0 || *v > math.MaxInt64-metricSlack {
				return 0, 0, api.Errorf(api.InvalidArgument, "%s: %.40q is no time", name, text).
					WithHint("give seconds since 1970")
			}
		}
	}
	return from, to, nil
}
