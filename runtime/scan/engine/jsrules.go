package engine

import (
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Rules of JavaScript that are about its syntax.
var (
	jsSyntax = newRule("javascript.syntax", api.CategoryUnparsable, high,
		"it is no JavaScript that can be parsed: what it does is not known")
	jsHTML      = newRule("javascript.html_comment", hides, high, "a comment of HTML's is code in modules")
	jsLookalike = newRule("javascript.escaped_name", hides, high, "a name is written with escapes")
	jsEscapes   = newRule("javascript.escapes", hides, medium, "plain letters of a text are written as escapes")
	jsPieces    = newRule("javascript.pieces", hides, high, "the name of something dangerous is put together of pieces")
	jsUnknown   = newRule("javascript.import_unknown", unknown, medium, "nothing is known of what this module does")
	jsDynImport = newRule("javascript.import_dynamic", evaluate, high,
		"the name of a module is made while the code runs")
	jsDynMember = newRule("javascript.member_dynamic", evaluate, medium,
		"which member of something dangerous is meant is decided while the code runs")
	jsCall = newRule("javascript.call_dynamic", evaluate, low,
		"which function is called is decided while the code runs")
	jsValue = newRule("javascript.value", evaluate, medium,
		"what reaches everything else is handed on as a value: what is called of it cannot be seen")
	jsWith  = newRule("javascript.with", hides, high, "what names mean is decided while the code runs")
	jsTimer = newRule("javascript.eval", evaluate, high, "runs a text as code")
)

// jsSafe are modules that only compute.
var jsSafe = setOf(`assert assert/strict buffer console constants crypto events path path/posix path/win32 perf_hooks punycode querystring readline
	readline/promises stream stream/promises string_decoder test timers timers/promises url util util/types async_hooks diagnostics_channel`)

// jsGlobals are names of the object that holds all global names.
var jsGlobals = setOf(`globalThis window self global frames top parent`)

// jsRules are what names are. Those of modules begin with "module:".
var jsRules = rulesOf("javascript", `
eval                  eval      dynamic_evaluation high runs a text as code
Function              eval      dynamic_evaluation high makes code of a text
GeneratorFunction     eval      dynamic_evaluation high makes code of a text
AsyncFunction         eval      dynamic_evaluation high makes code of a text
execScript            eval      dynamic_evaluation high runs a text as code
importScripts         eval      dynamic_evaluation high runs code of elsewhere
WebAssembly           native    dynamic_evaluation high runs machine code of a kind
Worker                worker    dynamic_evaluation high runs code of another file
SharedWorker          worker    dynamic_evaluation high runs code of another file
ShadowRealm           eval      dynamic_evaluation high runs a text as code
Reflect               reflect   dynamic_evaluation medium reaches members by texts
Proxy                 reflect   dynamic_evaluation low  decides what members are while the code runs
fetch                 http      network    high   fetches what URLs name
XMLHttpRequest        http      network    high   fetches what URLs name
WebSocket             http      network    high   opens connections
EventSource           http      network    high   opens connections
RTCPeerConnection     http      network    high   opens connections
navigator             http      network    medium can send data
location              http      network    medium opens other pages
document              page      dynamic_evaluation medium changes a page, which may run code
localStorage          storage   filesystem medium keeps data
sessionStorage        storage   filesystem medium keeps data
indexedDB             storage   filesystem medium keeps data
Deno                  deno      process    high   reaches files, network and processes
Bun                   bun       process    high   reaches files, network and processes
process               process   process    low    the process itself
process.env           environment process  medium reads or changes the environment, where secrets are
process.argv          process   process    low    arguments
process.stdout        process   process    low    output
process.stderr        process   process    low    output
process.stdin         process   process    low    input
process.exit          process   process    low    ends the program
process.hrtime        process   process    low    a clock
process.nextTick      process   process    low    runs a function later
process.memoryUsage   process   process    low    looks at memory
process.version*      process   process    low    tells what the interpreter is
process.platform      process   process    low    tells what machine this is
process.kill          signal    process    high   signals processes
process.abort         signal    process    low    ends the program
process.binding       internals dynamic_evaluation high reaches the interpreter's insides
process._linkedBinding internals dynamic_evaluation high reaches the interpreter's insides
process.dlopen        native    dynamic_evaluation high runs machine code
process.mainModule    internals dynamic_evaluation high reaches require
process.getBuiltinModule internals dynamic_evaluation high imports a module by a text
process.set*          identity  process    high   changes who the process is
process.chdir         files     filesystem medium changes the current folder
process.*             process_call process medium a call of the process
require               require   dynamic_evaluation low imports a module
require.*             internals dynamic_evaluation high reaches how modules are found
module                module    dynamic_evaluation low the module itself
module.exports        module    dynamic_evaluation low what the module gives
module.*              internals dynamic_evaluation high reaches require
module:module         internals dynamic_evaluation high changes how modules are found
module:vm             eval      dynamic_evaluation high runs a text as code
module:repl           eval      dynamic_evaluation high runs what it is told
module:v8             internals dynamic_evaluation high makes objects of bytes
module:inspector      internals dynamic_evaluation high runs what it is told
module:worker_threads worker    dynamic_evaluation high runs code of another file
module:wasi           native    dynamic_evaluation high runs machine code of a kind
module:ffi-napi       native    dynamic_evaluation high calls machine code
module:vm2            eval      dynamic_evaluation high runs a text as code
module:child_process  subprocess process   high   runs other programs
module:cluster        subprocess process   high   makes processes
module:node-pty       subprocess process   high   runs other programs
module:execa          subprocess process   high   runs other programs
module:shelljs        subprocess process   high   runs other programs
module:cross-spawn    subprocess process   high   runs other programs
module:zx             subprocess process   high   runs other programs
module:process        process   process    medium the process itself
module:os             os        process    low    tells what machine this is
module:fs             fs        filesystem high   reaches files
module:fs/promises    fs        filesystem high   reaches files
module:fs-extra       fs        filesystem high   reaches files
module:graceful-fs    fs        filesystem high   reaches files
module:glob           fs        filesystem medium lists files
module:sqlite         database  filesystem medium opens files
module:sqlite3        database  filesystem medium opens files
module:better-sqlite3 database  filesystem medium opens files
module:rimraf         fs        filesystem high   deletes folders with all that is in them
module:net            socket    network    high   opens connections
module:tls            socket    network    high   opens connections
module:dgram          socket    network    high   sends data
module:dns            socket    network    high   asks for names
module:dns/promises   socket    network    high   asks for names
module:http           http      network    high   speaks HTTP
module:http2          http      network    high   speaks HTTP
module:https          http      network    high   speaks HTTP
module:undici         http      network    high   speaks HTTP
module:axios          http      network    high   speaks HTTP
module:node-fetch     http      network    high   speaks HTTP
module:got            http      network    high   speaks HTTP
module:request        http      network    high   speaks HTTP
module:superagent     http      network    high   speaks HTTP
module:ws             http      network    high   opens connections
module:socket.io      http      network    high   opens connections
module:express        http      network    high   serves connections
module:nodemailer     protocol  network    high   sends mail
module:ssh2           protocol  network    high   speaks to other machines
module:puppeteer      browser   network    high   drives a browser
module:playwright     browser   network    high   drives a browser
module:zlib           decode    obfuscation low   unpacks bytes
module:node-serialize pickle    dynamic_evaluation high runs what its input says
atob                  decode    obfuscation low   makes bytes of a text
Buffer                decode    obfuscation low   makes bytes of a text
unescape              decode    obfuscation low   makes a text of another
`)

// jsMembers are names that mean something wherever they are found.
var jsMembers = map[string]rule{
	"constructor": {"javascript.constructor", evaluate, medium, "a constructor's constructor makes code of a text"},
}

func init() {
	add := func(r rule, names string) {
		for name := range setOf(names) {
			jsMembers[name] = r
		}
	}
	add(newRule("javascript.prototype", evaluate, medium, "changes what other objects do"),
		`__proto__ __defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__ setPrototypeOf getPrototypeOf`)
	add(newRule("javascript.internals", evaluate, high, "reaches how modules are found"),
		`mainModule _load _extensions createRequire getBuiltinModule _linkedBinding dlopen runInThisContext runInNewContext runInContext`)
	add(newRule("javascript.method", process, medium, "a method of this name often runs programs"),
		`execSync execFile execFileSync spawn spawnSync fork`)
	add(newRule("javascript.method", files, medium, "a method of this name often reaches files"),
		`readFileSync writeFileSync appendFileSync readFile writeFile appendFile unlink unlinkSync rmSync rmdirSync mkdirSync readdirSync readdir
		createWriteStream createReadStream openSync copyFileSync renameSync chmodSync`)
	add(newRule("javascript.method", network, medium, "a method of this name often sends data"),
		`sendBeacon XMLHttpRequest`)
}

// jsMatch is the rule for a dotted name.
func jsMatch(path string) (rule, bool) {
	for p := path; ; {
		if r, ok := jsRules.exact[p]; ok {
			return r, true
		}
		if r, ok := jsRules.prefix(p); ok {
			return r, true
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			return rule{}, false
		}
		p = p[:i]
	}
}
