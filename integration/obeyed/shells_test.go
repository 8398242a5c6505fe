package obeyed_test

import (
	"path/filepath"

	"github.com/hutch-sh/hutch/integration/world"
)

// touches is what each shell understands.
const touches = "touch MARK\n"

// atHome is a program that obeys one file of the home folder, which is all of the name that is guarded.
func atHome(name, seen, file, text string, run func(*user)) program {
	return program{name: name, seen: seen, rows: []string{file}, made: map[string]string{file: text}, home: true,
		run: run}
}

// skeleton has the user's file be the one that Debian gives to new accounts.
func skeleton(name string) func(*user) {
	return func(u *user) { u.copied(filepath.Join("/etc/skel", name), name) }
}

// shells obey files of the home folder when they start.
func shells() []program {
	bash := func(name, file string, run func(*user)) program {
		p := atHome(name, "bash 5.2.15", file, touches, run)
		p.needs, p.version = []string{"bash"}, []string{"bash", "--version"}
		return p
	}
	zsh := func(name string, run func(*user)) program {
		p := atHome(name, "zsh 5.9", "."+name, touches, run)
		p.needs, p.version = []string{"zsh"}, []string{"zsh", "--version"}
		if name != "zshrc" {
			p.before = map[string]string{".zshrc": "#\n"} // without one it asks its user for its settings
		}
		return p
	}
	tcsh := func(name string, run func(*user)) program {
		p := atHome(name, "tcsh 6.24.07", "."+name, touches, run)
		p.needs, p.version = []string{"tcsh"}, []string{"tcsh", "--version"}
		return p
	}
	aliases := bash("bash_aliases", ".bash_aliases", shows("bash", "-ic", "true"))
	aliases.setup = skeleton(".bashrc")
	bin := program{name: "local-bin", seen: "bash 5.2.15", rows: []string{".local/bin"}, needs: []string{"bash"},
		made: map[string]string{".local/bin/ls": shell}, home: true, setup: skeleton(".profile"),
		run: runs("bash", "-lc", "ls")}
	readline := bash("inputrc", ".inputrc", func(u *user) {
		u.terminal(func(p *world.PTY) {
			p.Sees("ready")
			p.Write("exit\r")
		}, "bash", "--norc", "-i")
	})
	readline.seen, readline.env = "readline 8.2 in bash 5.2.15", []string{"PS1=ready "}
	readline.made = map[string]string{".inputrc": `"\C-m": "\C-atouch MARK; \C-j"` + "\n"}
	ksh := atHome("kshrc", "ksh 93u+m 1.0.4", ".kshrc", touches, shows("ksh93", "-ic", "true"))
	ksh.needs, ksh.version = []string{"ksh93"}, []string{"ksh93", "-c", "echo $KSH_VERSION"}
	fish := program{name: "fish", seen: "fish 3.6.0", rows: []string{".config/fish"}, needs: []string{"fish"},
		version: []string{"fish", "--version"}, made: map[string]string{".config/fish/config.fish": touches},
		home: true, run: runs("fish", "-c", "true")}
	zshrc := zsh("zshrc", shows("zsh", "-ic", "true"))
	zshrc.before = map[string]string{".zshrc": "#\n"}
	return []program{
		bash("bashrc", ".bashrc", shows("bash", "-ic", "true")),
		bash("bash_profile", ".bash_profile", runs("bash", "-lc", "true")),
		bash("bash_login", ".bash_login", runs("bash", "-lc", "true")),
		bash("bash_logout", ".bash_logout", runs("bash", "-lc", "exit")),
		bash("profile", ".profile", runs("bash", "-lc", "true")),
		aliases, readline, bin,
		zshrc,
		zsh("zshenv", runs("zsh", "-c", "true")),
		zsh("zprofile", runs("zsh", "-lc", "true")),
		zsh("zlogin", runs("zsh", "-lc", "true")),
		zsh("zlogout", shows("zsh", "-ilc", "exit")),
		tcsh("cshrc", runs("tcsh", "-c", "true")),
		tcsh("tcshrc", runs("tcsh", "-c", "true")),
		tcsh("login", runs("tcsh", "-l")),
		ksh, fish,
	}
}

// sessions are programs that read a file of the home folder whenever they are started.
func sessions() []program {
	home := func(name, seen, program_, file, text string, run func(*user)) program {
		p := atHome(name, seen, file, text, run)
		p.needs = []string{program_}
		return p
	}
	tmux := func(name, row, file string) program {
		p := home(name, "tmux 3.3a", "tmux", row, "", runs("tmux", "-S", "HERE.sock", "new-session", "-d", ";",
			"run-shell", "true", ";", "kill-server"))
		p.version, p.made = []string{"tmux", "-V"}, map[string]string{file: "run-shell \"touch MARK\"\n"}
		return p
	}
	less := home("less", "less 590", "less", ".lesskey", "#env\nLESSOPEN = |touch MARK; cat %s\n",
		shows("less", "-EX", "file"))
	less.version = []string{"less", "--version"}
	rg := home("ripgrep", "ripgrep 13.0.0", "rg", ".ripgreprc", "--pre=HERE/pre\n", runs("rg", "words", "file"))
	rg.env, rg.version = []string{"RIPGREP_CONFIG_PATH=HERE/.ripgreprc"}, []string{"rg", "--version"}
	rg.beside = map[string]string{"pre": shell + "cat \"$1\"\n"}
	wget := home("wget", "GNU Wget 1.21.3", "wget", ".wgetrc", "use_askpass = HERE/ask\n",
		runs("wget", "-q", "-O", "/dev/null", "--tries=1", "http://127.0.0.1:9/"))
	wget.beside, wget.version = map[string]string{"ask": shell}, []string{"wget", "--version"}
	curl := home("curl", "curl 7.88.1", "curl", ".curlrc", "output = MARK\n", runs("curl", "-s", "file://HERE/file"))
	curl.version = []string{"curl", "--version"}
	mailcap := home("mailcap", "mailcap 3.70", "run-mailcap", ".mailcap", "text/plain; touch MARK\n",
		runs("run-mailcap", "--action=view", "text/plain:file"))
	gpg := program{name: "gnupg", seen: "GnuPG 2.2.40", rows: []string{".gnupg"}, needs: []string{"gpg", "gpg-agent"},
		version: []string{"gpg", "--version"}, home: true,
		made:   map[string]string{".gnupg/gpg-agent.conf": "pinentry-program HERE/pin\n"},
		beside: map[string]string{"pin": shell},
		run:    all(runs("gpg", "-q", "-o", "out", "-c", "file"), runs("gpgconf", "--kill", "all"))}
	gdb := home("gdb-home", "GNU gdb 13.1", "gdb", ".gdbinit", "shell touch MARK\n", runs("gdb", "-batch"))
	gdbConfig := program{name: "gdb-config", seen: "GNU gdb 13.1", rows: []string{".config/gdb"},
		needs: []string{"gdb"}, made: map[string]string{".config/gdb/gdbinit": "shell touch MARK\n"}, home: true,
		run: runs("gdb", "-batch")}
	return []program{
		tmux("tmux", ".tmux.conf", ".tmux.conf"), tmux("tmux-config", ".config/tmux", ".config/tmux/tmux.conf"),
		less, rg, wget, curl, mailcap, gpg,
		gdb, gdbConfig,
	}
}
