package obeyed_test

// interpreters obey a file of the folder in which they are started.
func interpreters() []program {
	const ruby = `system("touch", "MARK")` + "\n"
	of := func(name, seen, needs, row, text string, run func(*user)) program {
		return program{name: name, seen: seen, rows: []string{row}, needs: []string{needs},
			version: []string{needs, "--version"}, made: map[string]string{row: text}, run: run}
	}
	irb := func(name, row string) program { return of(name, "irb 1.4.1", "irb", row, ruby, runs("irb")) }
	bundler := of("bundler", "Bundler 2.3.15", "bundle", ".bundle/config", "---\nBUNDLE_GEMFILE: \"other.rb\"\n",
		runs("bundle", "list"))
	bundler.beside, bundler.before = map[string]string{"other.rb": ruby}, map[string]string{"Gemfile": "#\n"}
	environ := of("renviron", "R 4.2.2", "R", ".Renviron", "R_PROFILE_USER=HERE/other.R\n", runs("Rscript", "-e", "1"))
	environ.beside = map[string]string{"other.R": `system("touch MARK")` + "\n"}
	return []program{
		irb("irbrc", ".irbrc"), irb("irb.rc", "irb.rc"), irb("_irbrc", "_irbrc"), irb("$irbrc", "$irbrc"),
		of("pry", "Pry 0.13.1", "pry", ".pryrc", ruby, runs("pry", "-e", "exit")), bundler,
		of("rprofile", "R 4.2.2", "R", ".Rprofile", `system("touch MARK")`+"\n", runs("Rscript", "-e", "1")), environ,
		of("iex", "Elixir 1.14.0", "iex", ".iex.exs", `System.cmd("touch", ["MARK"])`+"\n", runs("iex")),
		of("ocaml", "OCaml 4.13.1", "ocaml", ".ocamlinit", "let _ = Sys.command \"touch MARK\";;\n", runs("ocaml")),
	}
}
