package obeyed_test

// packages are programs that build and install, and obey files of the folder whatever they install.
func packages() []program {
	const script = "require('fs').writeFileSync('MARK', '')\n"
	const project = `{"name": "x", "version": "1.0.0"}`
	// They ask no registry, neither for packages nor for newer versions of themselves.
	quiet := []string{"npm_config_registry=http://127.0.0.1:9/", "npm_config_update_notifier=false",
		"npm_config_fetch_retries=0"}
	npm := program{name: "npm", seen: "npm 11.19.1", rows: []string{".npmrc"}, needs: []string{"npm", "git"},
		version: []string{"npm", "--version"}, made: map[string]string{".npmrc": "git=HERE/tool\n"},
		beside: map[string]string{"tool": shell}, before: map[string]string{"package.json": project},
		run: runs("npm", "install", "--no-audit", "git+file://HERE/none"), env: quiet}
	const yarn1, yarn = "NPM/yarn/bin/yarn.js", "NPM/@yarnpkg/cli-dist/bin/yarn.js"
	classic := program{name: "yarnrc", seen: "Yarn 1.22.22", rows: []string{".yarnrc"}, needs: []string{"node", yarn1},
		version: []string{"node", yarn1, "--version"}, made: map[string]string{".yarnrc": "yarn-path \"./tool.js\"\n"},
		beside: map[string]string{"tool.js": script}, before: map[string]string{"package.json": project},
		run: runs("node", yarn1, "config", "list")}
	berry := func(name, row string, made, before map[string]string) program {
		p := program{name: name, seen: "Yarn 4.18.1", rows: []string{row}, needs: []string{"node", yarn},
			version: []string{"node", yarn, "--version"}, made: made, before: before,
			run: runs("node", yarn, "config"), env: []string{"YARN_ENABLE_TELEMETRY=0"}}
		p.beside = map[string]string{"tool.cjs": script}
		if before == nil {
			p.before = map[string]string{}
		}
		p.before["package.json"] = project
		return p
	}
	pnpm := program{name: "pnpmfile", seen: "pnpm 10.34.8", rows: []string{".pnpmfile.cjs"},
		needs:   []string{"node", "NPM/pnpm/bin/pnpm.cjs"},
		version: []string{"node", "NPM/pnpm/bin/pnpm.cjs", "--version"},
		made:    map[string]string{".pnpmfile.cjs": script}, before: map[string]string{"package.json": project},
		run: runs("node", "NPM/pnpm/bin/pnpm.cjs", "install", "--offline"), env: quiet}
	return []program{
		npm, classic,
		berry("yarnrc-yml", ".yarnrc.yml", map[string]string{".yarnrc.yml": "yarnPath: ./tool.cjs\n"}, nil),
		berry("yarn-releases", ".yarn/releases", map[string]string{".yarn/releases/yarn.cjs": script},
			map[string]string{".yarnrc.yml": "yarnPath: .yarn/releases/yarn.cjs\n", ".yarn/releases/yarn.cjs": "0\n"}),
		berry("yarn-plugins", ".yarn/plugins",
			map[string]string{".yarn/plugins/x.cjs": "module.exports = {name: 'x', factory: () => { " + script +
				"return {} }}\n"},
			map[string]string{".yarnrc.yml": "plugins:\n- path: .yarn/plugins/x.cjs\n  spec: x\n",
				".yarn/plugins/x.cjs": "module.exports = {name: 'x', factory: () => ({})}\n"}),
		pnpm,
	}
}
