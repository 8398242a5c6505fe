package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hutch-sh/hutch/runtime/api"
)

// maxReply bounds what Read returns, in bytes.
const maxReply = 2 << 20

// validID says whether a sandbox of this id could have a log: it becomes a path.
func validID(id string) bool {
	if id == api.AuditHost {
		return true
	}
	name, ok := strings.CutPrefix(id, "sb_")
	return ok && len(name) >= 1 && len(name) <= 64 && strings.Trim(name, letters) == ""
}

// letters are those of ids.
const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func listSegments(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var firsts []int64
	for _, e := range entries {
		digits, ok := strings.CutSuffix(e.Name(), ".jsonl")
		first, err := strconv.ParseInt(digits, 10, 64)
		if ok && err == nil && first > 0 && e.Name() == segmentName(first) {
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}

// lines calls f with each line of a file up to limit bytes, without its newline; whole says
// that there was one. A line that is too long for a record is cut.
func lines(r io.Reader, limit int64, f func(line []byte, whole bool) (more bool)) error {
	in := bufio.NewReaderSize(io.LimitReader(r, limit), maxRecord)
	for {
		line, err := in.ReadSlice('\n')
		for kept := err; errors.Is(err, bufio.ErrBufferFull); {
			if kept != nil { // once: the buffer is used again
				line, kept = slices.Clone(line), nil
			}
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) == 0 {
			return nil
		}
		if text, whole := bytes.CutSuffix(line, []byte{'\n'}); !f(text, whole || err == nil) || err != nil {
			return nil
		}
	}
}

const everything = 1 << 62

// lastRecord is the last good record of a segment, where it ends, and what is behind it.
func lastRecord(path string) (last api.AuditRecord, size int64, torn []byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return last, 0, nil, err
	}
	for end := len(data); end > 0; {
		i := bytes.LastIndexByte(data[:end], '\n')
		if i < 0 {
			break
		}
		start := bytes.LastIndexByte(data[:i], '\n') + 1
		if r, sum, err := parseRecord(data[start:i]); err == nil && sum == r.Hash {
			return r, int64(i + 1), data[i+1:], nil
		}
		end = start
	}
	return last, 0, data, nil
}

// dirOf is the folder of a sandbox's log.
func (l *Logs) dirOf(sandbox string) (string, error) {
	dir := filepath.Join(l.dir, sandbox)
	if validID(sandbox) {
		if _, err := os.Stat(dir); err == nil {
			return dir, nil
		}
	}
	return "", api.Errorf(api.NotFound, "there is no audit log of sandbox %q", sandbox).WithField("sandbox").
		WithHint("`hutch audit ls` lists what is kept, of a sandbox that was removed by its id; audit.enabled in the configuration says whether there are any")
}

// Read returns records as audit.read does. It waits for the next one where there is none
// and p says so.
func (l *Logs) Read(ctx context.Context, p api.AuditReadParams) (api.AuditRecords, error) {
	wait := time.NewTimer(time.Duration(p.WaitS * float64(time.Second)))
	defer wait.Stop()
	if err := l.Sync(ctx); err != nil {
		return api.AuditRecords{}, err
	}
	for {
		l.mu.Lock()
		grown := l.grown
		l.mu.Unlock()
		res, err := l.read(&p)
		if err != nil || len(res.Records) > 0 || res.Ended || res.More || p.WaitS == 0 {
			return res, err
		}
		p.FromSeq = res.Next
		select {
		case <-grown:
		case <-wait.C:
			return res, nil
		case <-ctx.Done():
			return res, context.Cause(ctx)
		case <-l.done:
			return res, nil
		}
	}
}

func (l *Logs) read(p *api.AuditReadParams) (api.AuditRecords, error) {
	res := api.AuditRecords{Sandbox: p.Sandbox, Records: []json.RawMessage{}, Next: max(1, p.FromSeq)}
	dir, err := l.dirOf(p.Sandbox)
	if err != nil {
		return res, err
	}
	firsts, err := listSegments(dir)
	if err != nil {
		return res, err
	}
	limit, bytes := p.Limit, 0
	if limit == 0 {
		limit = api.MaxAuditRead
	}
	for i, first := range firsts {
		if i+1 < len(firsts) && firsts[i+1] <= p.FromSeq {
			continue
		}
		err := eachLine(filepath.Join(dir, segmentName(first)), everything, func(line []byte, whole bool) bool {
			if !whole {
				return false // it is being written
			}
			if seqOf(line) < p.FromSeq {
				return true
			}
			r, _, err := parseRecord(line)
			if err != nil {
				res.Broken++
				return true
			}
			if len(res.Records) >= limit || bytes > maxReply {
				res.More = true
				return false
			}
			res.Next = r.Seq + 1
			res.Ended = r.Kind == api.AuditClosed
			if matches(p, &r) {
				res.Records = append(res.Records, slices.Clone(line))
				bytes += len(line)
			}
			return true
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // dropped just now
			return res, err
		}
		if res.More {
			break
		}
	}
	return res, nil
}

func matches(p *api.AuditReadParams, r *api.AuditRecord) bool {
	return (p.Since == nil || !r.Time.Before(*p.Since)) && (p.Exec == "" || r.Exec == p.Exec) &&
		(len(p.Kinds) == 0 || slices.Contains(p.Kinds, r.Kind))
}

// seqOf is the number that a line begins with, MaxInt64 where it does not.
func seqOf(line []byte) int64 {
	rest, ok := bytes.CutPrefix(line, []byte(`{"seq":`))
	digits, _, found := bytes.Cut(rest, []byte{','})
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if !ok || !found || err != nil {
		return 1<<63 - 1
	}
	return n
}

func eachLine(path string, limit int64, f func(line []byte, whole bool) bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := lines(file, limit, f); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Head is the last record of a log.
func (l *Logs) Head(ctx context.Context, sandbox string) (api.AuditHead, error) {
	if err := l.Sync(ctx); err != nil {
		return api.AuditHead{}, err
	}
	dir, err := l.dirOf(sandbox)
	if err != nil {
		return api.AuditHead{}, err
	}
	l.mu.Lock()
	e, open := l.ends[sandbox]
	l.mu.Unlock()
	if open {
		return e.head, nil
	}
	firsts, err := listSegments(dir)
	for _, first := range slices.Backward(firsts) {
		if r, _, _, err := lastRecord(filepath.Join(dir, segmentName(first))); err != nil || r.Seq > 0 {
			return api.AuditHead{Seq: r.Seq, Hash: r.Hash}, err
		}
	}
	return api.AuditHead{}, err
}
