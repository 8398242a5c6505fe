package e2b

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Messages of process.Process, with the names that its .proto file has. A member that is a pointer is one of several,
// or may be missing.

type empty struct{}

type selector struct {
	PID *uint32 `json:"pid,omitempty"`
	Tag *string `json:"tag,omitempty"`
}

type processConfig struct {
	Cmd  string            `json:"cmd"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  *string           `json:"cwd,omitempty"`
}

type ptySize struct {
	Cols uint32 `json:"cols"`
	Rows uint32 `json:"rows"`
}

type pty struct {
	Size *ptySize `json:"size,omitempty"`
}

type processInfo struct {
	Config processConfig `json:"config"`
	PID    uint32        `json:"pid"`
	Tag    *string       `json:"tag,omitempty"`
}

type listResponse struct {
	Processes []processInfo `json:"processes"`
}

type startRequest struct {
	Process processConfig `json:"process"`
	PTY     *pty          `json:"pty,omitempty"`
	Tag     *string       `json:"tag,omitempty"`
	Stdin   *bool         `json:"stdin,omitempty"` // missing is true
}

type connectRequest struct {
	Process selector `json:"process"`
}

type updateRequest struct {
	Process selector `json:"process"`
	PTY     *pty     `json:"pty,omitempty"`
}

type processInput struct {
	Stdin []byte `json:"stdin,omitempty"`
	PTY   []byte `json:"pty,omitempty"`
}

type sendInputRequest struct {
	Process selector     `json:"process"`
	Input   processInput `json:"input"`
}

type streamInputRequest struct {
	Start *connectRequest `json:"start,omitempty"`
	Data  *struct {
		Input processInput `json:"input"`
	} `json:"data,omitempty"`
}

// signalNumber is an enum: SIGNAL_SIGTERM or 15, SIGNAL_SIGKILL or 9.
type signalNumber int

func (n *signalNumber) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"SIGNAL_SIGTERM"`, "15":
		*n = 15
	case `"SIGNAL_SIGKILL"`, "9":
		*n = 9
	default:
		return fmt.Errorf("%.40q is no signal: SIGNAL_SIGTERM and SIGNAL_SIGKILL can be sent", text)
	}
	return nil
}

type signalRequest struct {
	Process selector     `json:"process"`
	Signal  signalNumber `json:"signal"`
}

type processEvent struct {
	Start     *startEvent `json:"start,omitempty"`
	Data      *dataEvent  `json:"data,omitempty"`
	End       *endEvent   `json:"end,omitempty"`
	Keepalive *empty      `json:"keepalive,omitempty"`
}

type startEvent struct {
	PID uint32 `json:"pid"`
}

type dataEvent struct {
	Stdout []byte `json:"stdout,omitempty"`
	Stderr []byte `json:"stderr,omitempty"`
	PTY    []byte `json:"pty,omitempty"`
}

type endEvent struct {
	ExitCode int     `json:"exitCode"`
	Exited   bool    `json:"exited"`
	Status   string  `json:"status"`
	Error    *string `json:"error,omitempty"`
}

type eventResponse struct {
	Event processEvent `json:"event"`
}

// Messages of filesystem.Filesystem.

type fileType string

const (
	fileFile    fileType = "FILE_TYPE_FILE"
	fileFolder  fileType = "FILE_TYPE_DIRECTORY"
	fileSymlink fileType = "FILE_TYPE_SYMLINK"
	fileOther   fileType = "FILE_TYPE_UNSPECIFIED"
)

// int64Text is an integer of 64 bits, which JSON of protobuf has as text.
type int64Text int64

func (n int64Text) MarshalJSON() ([]byte, error) {
	return json.Marshal(strconv.FormatInt(int64(n), 10))
}

type entryInfo struct {
	Name          string    `json:"name"`
	Type          fileType  `json:"type"`
	Path          string    `json:"path"`
	Size          int64Text `json:"size"`
	Mode          uint32    `json:"mode"`
	Permissions   string    `json:"permissions"`
	Owner         string    `json:"owner"`
	Group         string    `json:"group"`
	ModifiedTime  time.Time `json:"modifiedTime"`
	SymlinkTarget *string   `json:"symlinkTarget,omitempty"`

	Metadata map[string]string `json:"metadata,omitempty"`
}

type pathRequest struct {
	Path string `json:"path"`
}

type entryResponse struct {
	Entry entryInfo `json:"entry"`
}

type moveRequest struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

type listDirRequest struct {
	Path  string `json:"path"`
	Depth uint32 `json:"depth"`
}

type listDirResponse struct {
	Entries []entryInfo `json:"entries"`
}

// watchRequest asks for the changes in a folder. Whether that may be on a network mount is not asked: there are none.
type watchRequest struct {
	Path         string `json:"path"`
	Recursive    bool   `json:"recursive"`
	IncludeEntry bool   `json:"includeEntry"`
}

type eventType string

type fileEvent struct {
	Name  string     `json:"name"`
	Type  eventType  `json:"type"`
	Entry *entryInfo `json:"entry,omitempty"`
}

type watchResponse struct {
	Start      *empty     `json:"start,omitempty"`
	Filesystem *fileEvent `json:"filesystem,omitempty"`
	Keepalive  *empty     `json:"keepalive,omitempty"`
}

type watcherRef struct {
	WatcherID string `json:"watcherId"`
}

type watcherEvents struct {
	Events []fileEvent `json:"events"`
}
