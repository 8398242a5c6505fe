package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/hutch-sh/hutch/runtime/api"
)

// maxProblems are listed.
const maxProblems = 100

// verifier follows a chain from record to record.
type verifier struct {
	res   api.AuditVerified
	heads []api.AuditHead // that must be in the log
	met   map[int64]bool  // those of them that are

	next    int64  // number that is expected; 0: any
	prev    string // hash that is expected; "": any
	dropped int64  // records up to this one are said to be deleted
	end     bool   // the last record says that no more come
}

func newVerifier(heads ...api.AuditHead) *verifier {
	v := &verifier{met: map[int64]bool{}, heads: heads}
	v.res.Issues = []api.AuditBug{}
	return v
}

func (v *verifier) problem(seq int64, file string, line int, format string, args ...any) {
	if len(v.res.Issues) >= maxProblems {
		v.res.Untold++
		return
	}
	v.res.Issues = append(v.res.Issues, api.AuditBug{Seq: seq, File: file, Line: line,
		Detail: fmt.Sprintf(format, args...)})
}

// line takes the next line of the log.
func (v *verifier) line(line []byte, file string, number int) {
	r, sum, err := parseRecord(line)
	if err != nil {
		v.problem(v.next, file, number, "this is no record; it was changed, or cut off")
		if v.next > 0 {
			v.next++
		}
		v.prev = ""
		return
	}
	bad := func(format string, args ...any) { v.problem(r.Seq, file, number, format, args...) }
	if sum != r.Hash {
		bad("the record was changed: its hash is not %s", r.Hash)
	}
	if v.res.Records++; v.res.Records == 1 && v.next == 0 {
		v.res.First, v.next = r.Seq, r.Seq
		if v.res.Sandbox == "" {
			v.res.Sandbox = r.Sandbox
		}
		if r.Seq == 1 && (r.Prev != zeros || r.Kind != api.AuditOpened) {
			bad("the first record does not begin a log")
		}
	}
	if r.Sandbox != v.res.Sandbox {
		bad("the record is of sandbox %s", r.Sandbox)
	}
	var res api.AuditResumption
	if r.Kind == api.AuditResumed && json.Unmarshal(r.Data, &res) == nil {
		if !res.Clean {
			v.res.Resumed++
		}
		if res.HeadLost {
			bad("the daemon found no head: records before it may have been removed")
		}
	}
	switch {
	case r.Seq < v.next:
		bad("the record is not where it belongs: number %d was expected", v.next)
	case r.Seq > v.next:
		v.problem(v.next, file, number, "records %d to %d are missing", v.next, r.Seq-1)
	case v.prev != "" && r.Prev != v.prev:
		bad("the record does not follow the one before: that one was changed, or this is of another log")
	}
	if v.end && v.res.Closed {
		bad("there are records behind the last")
	}
	for _, h := range v.heads {
		if h.Seq == r.Seq {
			if v.met[h.Seq] = true; h.Hash != r.Hash {
				bad("the record is another one than the head that is known")
			}
		}
	}
	v.end = r.Kind == api.AuditClosed
	v.res.Closed = v.end
	v.count(&r)
	v.next, v.prev = max(v.next, r.Seq+1), r.Hash
	v.res.Head = api.AuditHead{Seq: r.Seq, Hash: r.Hash}
}

// count reads what records say about records.
func (v *verifier) count(r *api.AuditRecord) {
	var loss api.AuditLoss
	var drop api.AuditDrop
	switch {
	case r.Kind == api.AuditLost && json.Unmarshal(r.Data, &loss) == nil:
		v.res.Lost += loss.Count
	case r.Kind == api.AuditDropped && json.Unmarshal(r.Data, &drop) == nil:
		v.dropped = drop.To
	}
}

// finish looks at what only the whole log shows.
func (v *verifier) finish(file string) api.AuditVerified {
	if v.res.Records == 0 {
		v.problem(1, file, 0, "there is no record")
	} else if v.res.First > 1 && v.dropped < v.res.First-1 {
		v.problem(1, file, 0, "records 1 to %d are missing, and no record says that they were dropped", v.res.First-1)
	}
	for _, h := range v.heads {
		switch {
		case v.met[h.Seq]:
		case h.Seq < v.res.First:
			v.problem(h.Seq, file, 0, "the record of the head that is known is not kept any more")
		default:
			v.problem(h.Seq, file, 0, "the log ends before record %d, which is known to be there", h.Seq)
		}
		v.met[h.Seq] = true
	}
	v.res.OK = len(v.res.Issues) == 0
	return v.res
}

// VerifyStream checks records as `hutch audit SANDBOX --json` prints them.
func VerifyStream(r io.Reader, name string, heads ...api.AuditHead) (api.AuditVerified, error) {
	v := newVerifier(heads...)
	n := 0
	err := lines(r, everything, func(line []byte, _ bool) bool {
		n++
		v.line(line, name, n)
		return true
	})
	return v.finish(name), err
}

// verifyDir checks a log; of one that is open, up to its end: nil is a log that nobody writes.
func verifyDir(dir, sandbox string, open *end, heads []api.AuditHead) (api.AuditVerified, error) {
	firsts, err := listSegments(dir)
	if err != nil {
		return api.AuditVerified{}, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "head"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return api.AuditVerified{}, err
	}
	head, known := parseHead(data)
	switch {
	case open != nil: // the file may be ahead of it by now
		heads = append(heads, open.head)
	case known:
		heads = append(heads, head)
	}
	v := newVerifier(heads...)
	v.res.Sandbox = sandbox
	last := ""
	for i, first := range firsts {
		last = segmentName(first)
		limit := int64(everything)
		if open != nil && first >= open.segment {
			if limit = open.size; first > open.segment {
				break
			}
		}
		n := 0
		err := eachLine(filepath.Join(dir, last), limit, func(line []byte, whole bool) bool {
			n++
			if n == 1 {
				if got := seqOf(line); got != first && whole {
					v.problem(first, last, 1, "the file does not begin with its record %d", first)
				}
			}
			if !whole && i == len(firsts)-1 && open == nil && known && v.met[head.Seq] {
				return false // of a daemon that was killed: the next says so in the log
			}
			v.line(line, last, n)
			return true
		})
		if err != nil {
			return v.res, err
		}
	}
	if !v.res.Closed && open == nil && !known {
		v.problem(v.next, last, 0, "the log has neither an end nor a head: records at its end may have been removed")
	}
	return v.finish(last), nil
}

// Verify checks the log of a sandbox.
func (l *Logs) Verify(ctx context.Context, p api.AuditVerifyParams) (api.AuditVerified, error) {
	if err := l.Sync(ctx); err != nil {
		return api.AuditVerified{}, err
	}
	dir, err := l.dirOf(p.Sandbox)
	if err != nil {
		return api.AuditVerified{}, err
	}
	var heads []api.AuditHead
	if p.Head != nil {
		heads = append(heads, *p.Head)
	}
	for range 3 {
		l.mu.Lock()
		e, open := l.ends[p.Sandbox]
		l.mu.Unlock()
		at := &e
		if !open {
			at = nil
		}
		var res api.AuditVerified
		if res, err = verifyDir(dir, p.Sandbox, at, heads); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return res, err
		} // a segment was dropped meanwhile
	}
	return api.AuditVerified{}, err
}
