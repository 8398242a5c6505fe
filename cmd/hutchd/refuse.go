package main

import (
	"encoding/json"
	"os"

	"golang.org/x/sys/unix"

	"github.com/hutch-sh/hutch/runtime/api"
)

// refuse tells the client of a connection that is not served why, in a JSON-RPC
// error about no call in particular. It never waits: the socket is fresh and empty.
func refuse(f *os.File, why *api.Error) {
	line, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": nil,
		"error": map[string]any{
			"code": why.Code.Number(), "message": why.Error(),
			"data": api.ErrorData{Code: why.Code, Hint: why.Hint},
		},
	})
	if err != nil {
		return
	}
	rc, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = rc.Control(func(fd uintptr) {
		_, _ = unix.SendmsgN(int(fd), append(line, '\n'), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
}
