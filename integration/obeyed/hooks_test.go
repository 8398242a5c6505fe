package obeyed_test

// hooks are programs that run at git commit, once their user has installed them, and obey files among the sources.
func hooks() []program {
	husky := program{name: "husky", seen: "husky 9.1.7", rows: []string{".husky"},
		needs:  []string{"git", "node", "NPM/husky/bin.js"},
		made:   map[string]string{".husky/pre-commit": "touch MARK\n"},
		before: map[string]string{".husky/pre-commit": "true\n"},
		setup:  all(repository, did("node", "NPM/husky/bin.js")), run: commit}
	precommit := program{name: "pre-commit", seen: "pre-commit 3.0.4", rows: []string{".pre-commit-config.yaml"},
		needs: []string{"git", "pre-commit"}, version: []string{"pre-commit", "--version"},
		made:   map[string]string{".pre-commit-config.yaml": "repos:\n- repo: local\n  hooks:\n" + localHook},
		before: map[string]string{".pre-commit-config.yaml": "repos: []\n"},
		setup: all(repository, did("git", "add", "."), did("git", "commit", "-q", "-m", "y"),
			did("pre-commit", "install")), run: commit}
	list := []program{husky, precommit}
	const lefthook = "NPM/lefthook-linux-x64/bin/lefthook"
	const yaml, tomlText = "pre-commit:\n  commands:\n    x:\n      run: touch MARK\n",
		"[pre-commit.commands.x]\nrun = \"touch MARK\"\n"
	const json = `{"pre-commit": {"commands": {"x": {"run": "touch MARK"}}}}`
	const plain = "pre-commit:\n  commands:\n    y:\n      run: true\n"
	installed := all(repository, did(lefthook, "install"))
	for _, row := range []struct{ name, text string }{
		{"lefthook.yml", yaml}, {"lefthook.yaml", yaml}, {".lefthook.yml", yaml}, {"lefthook.toml", tomlText},
		{"lefthook.json", json}, {"lefthook-local.yml", yaml}, {"lefthook-local.yaml", yaml},
		{"lefthook-local.toml", tomlText}, {"lefthook-local.json", json}, {".lefthook-local.yml", yaml},
	} {
		p := program{name: row.name, seen: "lefthook 2.2.1", rows: []string{row.name}, needs: []string{"git", lefthook},
			version: []string{lefthook, "version"}, made: map[string]string{row.name: row.text}, setup: installed,
			run: commit}
		switch row.name {
		case "lefthook-local.yml", "lefthook-local.yaml", "lefthook-local.toml", "lefthook-local.json":
			p.before = map[string]string{"lefthook.yml": plain}
		case ".lefthook-local.yml":
			p.before = map[string]string{".lefthook.yml": plain}
		default: // without a configuration it installs nothing
			p.before = map[string]string{row.name: map[string]string{yaml: plain,
				json:     `{"pre-commit": {"commands": {"y": {"run": "true"}}}}`,
				tomlText: "[pre-commit.commands.y]\nrun = \"true\"\n"}[row.text]}
		}
		list = append(list, p)
	}
	for _, folder := range []string{".lefthook", ".lefthook-local"} {
		list = append(list, program{name: folder[1:], seen: "lefthook 2.2.1", rows: []string{folder},
			needs: []string{"git", lefthook}, made: map[string]string{folder + "/pre-commit/x.sh": shell},
			before: map[string]string{"lefthook.yml": "pre-commit:\n  scripts:\n    x.sh:\n      runner: sh\n"},
			setup:  installed, run: commit})
	}
	for _, row := range []string{".lintstagedrc", ".lintstagedrc.json", ".lintstagedrc.yaml", ".lintstagedrc.yml"} {
		list = append(list, program{name: row[1:], seen: "lint-staged 15.5.2", rows: []string{row},
			needs:   []string{"git", "node", "NPM/lint-staged/bin/lint-staged.js"},
			version: []string{"node", "NPM/lint-staged/bin/lint-staged.js", "--version"},
			made:    map[string]string{row: `{"*": "touch MARK"}`}, before: map[string]string{row: `{"*": "true"}`},
			setup: all(repository, func(u *user) {
				u.write(u.dir, map[string]string{
					".git/hooks/pre-commit": "#!/bin/sh\nexec node NPM/lint-staged/bin/lint-staged.js\n"})
			}), run: commit})
	}
	return list
}

const localHook = "  - id: x\n    name: x\n    language: system\n    entry: touch MARK\n    always_run: true\n    pass_filenames: false\n"
