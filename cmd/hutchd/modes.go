package main

import (
	"github.com/hutch-sh/hutch/runtime/mode"
	"github.com/hutch-sh/hutch/runtime/monitor/monitorapi"
)

// modes are the settings of where commands run.
func modes(s *monitorapi.Settings) mode.Settings {
	return mode.Settings{Mode: s.Mode, Host: s.Host, Exec: s.Exec}
}
