package obeyed_test

import "strings"

// folders are programs that obey files of the folder that their user enters or works in.
func folders() []program {
	const direnvHook = `eval "$(direnv hook bash)"; _direnv_hook; true`
	direnv := program{name: "direnv", seen: "direnv 2.32.1", rows: []string{".envrc"},
		needs: []string{"direnv", "bash"}, version: []string{"direnv", "version"},
		made:   map[string]string{".envrc": touches},
		before: map[string]string{".envrc": "true\n"}, setup: did("direnv", "allow"),
		trust: has(".config/direnv/direnv.toml", "[whitelist]\nprefix = [\"HERE\"]\n"),
		run:   runs("bash", "-c", direnvHook)}
	direnvHome := program{name: "direnv-config", seen: "direnv 2.32.1", rows: []string{".config/direnv"},
		needs: []string{"direnv", "bash"}, home: true, made: map[string]string{".config/direnv/direnvrc": touches},
		before: map[string]string{"sub/.envrc": "true\n"}, setup: did("direnv", "allow", "sub"),
		run: runs("bash", "-c", "cd sub; "+direnvHook)}
	list := []program{direnv, direnvHome}
	const mise = "NPM/@jdxcode/mise-linux-x64/bin/mise"
	const entered = `eval "$(` + mise + ` hook-env -s bash)"; node --version`
	const exec = "[env]\nX = \"{{ exec(command='touch MARK') }}\"\n"
	trusts := has(".config/mise/config.toml", "[settings]\ntrusted_config_paths = [\"HERE\"]\n")
	for _, row := range []struct{ name, file, also string }{
		{name: ".mise.toml"}, {name: "mise.toml"}, {name: ".mise.local.toml"}, {name: "mise.local.toml"},
		{name: ".config/mise.toml", also: "mise.toml"},
		{name: ".config/mise", file: ".config/mise/config.toml", also: "mise/config.toml"},
		{name: ".mise", file: ".mise/config.toml"}, {name: "mise/config.toml"}, {name: "mise/config.local.toml"},
	} {
		file := row.file
		if file == "" {
			file = row.name
		}
		list = append(list, program{name: "mise-" + strings.ReplaceAll(row.name, "/", "-"), seen: "mise 2026.9.15",
			rows: []string{row.name}, needs: []string{mise, "bash"}, version: []string{mise, "--version"},
			made:  map[string]string{file: exec},
			trust: trusts, run: runs("bash", "-c", entered), env: []string{"MISE_OFFLINE=1"}, also: row.also})
	}
	list = append(list, program{name: "tool-versions", seen: "mise 2026.9.15", rows: []string{".tool-versions"},
		needs: []string{mise, "bash"}, made: map[string]string{".tool-versions": "node path:HERE/tools\n"},
		beside: map[string]string{"tools/bin/node": shell}, run: runs("bash", "-c", entered),
		env: []string{"MISE_OFFLINE=1"}})
	gdb := program{name: "gdb", seen: "GNU gdb 13.1", rows: []string{".gdbinit"}, needs: []string{"gdb"},
		version: []string{"gdb", "--version"}, made: map[string]string{".gdbinit": "shell touch MARK\n"},
		trust: has(".config/gdb/gdbinit", "add-auto-load-safe-path HERE\n"), run: runs("gdb", "-batch")}
	ansible := program{name: "ansible", seen: "ansible-core 2.14.18", rows: []string{"ansible.cfg"},
		needs: []string{"ansible"}, version: []string{"ansible", "--version"},
		made:   map[string]string{"ansible.cfg": "[defaults]\nvault_password_file = HERE/password\n"},
		beside: map[string]string{"password": shell + "echo x\n"},
		run:    runs("ansible-inventory", "-i", "localhost,", "--list")}
	return append(list, gdb, ansible)
}
