package obeyed_test

import "github.com/hutch-sh/hutch/integration/world"

// editors obey files of the folder that they are started in, once their user has asked for that, and of the home folder
// at each start.
func editors() []program {
	vim := program{seen: "Vim 9.0", needs: []string{"vim"}, version: []string{"vim", "--version"},
		run: runs("vim", "--not-a-term", "-n", "-i", "NONE", "-c", "qa!", "file")}
	nvim := program{seen: "Neovim 0.7.2", needs: []string{"nvim"}, version: []string{"nvim", "--version"},
		run: runs("nvim", "--headless", "-n", "-i", "NONE", "-c", "qa!", "file")}
	const touch = "silent !touch MARK\n"
	exrc := func(p program, name, row, trust string) program {
		p.name, p.rows, p.made, p.trust = name, []string{row}, map[string]string{row: touch}, has(trust, "set exrc\n")
		return p
	}
	emacs := program{seen: "Emacs 28.2", needs: []string{"emacs"}, version: []string{"emacs", "--version"},
		run: shows("emacs", "-nw", "--no-splash", "--eval", "(kill-emacs)")}
	const lisp = `(call-process "touch" nil nil nil "MARK")` + "\n"
	locals := func(name, row string) program {
		p := emacs
		p.name, p.rows = name, []string{row}
		p.made = map[string]string{row: `((nil . ((eval . ` + lisp + `))))` + "\n"}
		p.trust = has(".emacs", "(setq enable-local-variables :all)\n")
		p.run = func(u *user) {
			u.terminal(func(p *world.PTY) {
				if !u.trusting {
					p.Sees("may not be safe")
					p.Write("n")
				}
			}, "emacs", "-nw", "file", "--eval", "(kill-emacs)")
		}
		return p
	}
	return []program{
		exrc(vim, "exrc", ".exrc", ".vimrc"),
		exrc(vim, "vimrc", ".vimrc", ".vimrc"),
		exrc(vim, "_vimrc", "_vimrc", ".vimrc"),
		inHome(vim, "vim", ".vim", ".vim/vimrc", touch),
		exrc(nvim, "nvimrc", ".nvimrc", ".config/nvim/init.vim"),
		exrc(nvim, "exrc-nvim", ".exrc", ".config/nvim/init.vim"),
		inHome(nvim, "nvim", ".config/nvim", ".config/nvim/init.vim", touch),
		locals("dir-locals", ".dir-locals.el"),
		locals("dir-locals-2", ".dir-locals-2.el"),
		inHome(emacs, "emacs", ".emacs", ".emacs", lisp),
		inHome(emacs, "emacs-el", ".emacs.el", ".emacs.el", lisp),
		inHome(emacs, "emacs-d", ".emacs.d", ".emacs.d/init.el", lisp),
		inHome(emacs, "emacs-config", ".config/emacs", ".config/emacs/init.el", lisp),
	}
}

// inHome is p when it obeys a file of the home folder.
func inHome(p program, name, row, file, text string) program {
	p.name, p.rows, p.made, p.home = name, []string{row}, map[string]string{file: text}, true
	return p
}

// ordinary are programs that look for root's home folder elsewhere than in HOME.
func ordinary() []program {
	nano := program{seen: "GNU nano 7.2", needs: []string{"nano"}, version: []string{"nano", "--version"},
		// Execute, spell check, exit, and do not save, which it asks where the speller has changed its file.
		ordinary: true, run: types("GNU nano", "\x14\x13\x18n", "nano", "file")}
	const speller = "set speller \"touch MARK\"\n"
	return []program{
		inHome(nano, "nanorc", ".nanorc", ".nanorc", speller),
		inHome(nano, "nano-config", ".config/nano", ".config/nano/nanorc", speller),
	}
}
