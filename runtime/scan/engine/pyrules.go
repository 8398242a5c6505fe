package engine

import (
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

// Short names for the tables.
const (
	files    = api.CategoryFiles
	network  = api.CategoryNetwork
	process  = api.CategoryProcess
	evaluate = api.CategoryEvaluation
	hides    = api.CategoryObfuscation
	unknown  = api.CategoryUnknown
	low      = api.SeverityLow
	medium   = api.SeverityMedium
	high     = api.SeverityHigh
)

// Rules of Python that are about its syntax.
var (
	pySyntax = newRule("python.syntax", api.CategoryUnparsable, high,
		"it is no Python that can be parsed: what it does is not known")
	pyEncoding = newRule("python.encoding", hides, high,
		"a declared encoding other than UTF-8 makes Python read other code than is seen here")
	pyLookalike = newRule("python.lookalike", hides, high,
		"a name is written with other letters than Python reads (NFKC)")
	pyEscapes   = newRule("python.escapes", hides, medium, "plain letters of a text are written as escapes")
	pyPieces    = newRule("python.pieces", hides, high, "the name of something dangerous is put together of pieces")
	pyStar      = newRule("python.import_star", evaluate, low, "which names come from here cannot be seen")
	pyRelative  = newRule("python.import_unknown", unknown, medium, "nothing is known of what this module does")
	pyDynImport = newRule("python.import_dynamic", evaluate, high, "the name of a module is made while the code runs")
	pyDynAttr   = newRule("python.attribute_dynamic", evaluate, medium,
		"which attribute is meant is decided while the code runs")
	pyModule = newRule("python.module_value", evaluate, medium,
		"a module is handed on as a value: what is called of it cannot be seen")
	pyPrivate = newRule("python.private", evaluate, medium,
		"a private name of a module, which may be another module or what guards it")
	pyInspect = newRule("python.introspection", evaluate, high,
		"reaches interpreter internals, from which all else can be reached")
	pyMethod = newRule("python.method", unknown, medium,
		"a method of this name, of an object that is not known, often reaches beyond the program")
)

// pySafe are modules that only compute. What is not here and in no rule is unknown.
var pySafe = setOf(`__future__ abc array bisect calendar cmath collections colorsys contextlib copy dataclasses datetime decimal difflib enum fractions
	functools graphlib hashlib heapq hmac html itertools json keyword locale math numbers operator pprint queue random re reprlib secrets statistics
	string struct stringprep textwrap time token tokenize traceback types typing unicodedata uuid warnings weakref zoneinfo ast csv io logging
	argparse threading asyncio ipaddress contextvars tomllib xml os.path urllib.parse pathlib.PurePath collections.abc inspect errno
	configparser`)

// pyRules are what a name, with its module before it, is; a name below without a line of its own is what its module is.
// Names of builtins begin with "builtins.".
var pyRules = rulesOf("python", `
builtins.eval           eval       dynamic_evaluation high   runs code that is made while it runs
builtins.exec           exec       dynamic_evaluation high   runs code that is made while it runs
builtins.execfile       exec       dynamic_evaluation high   runs code of another file
builtins.compile        compile    dynamic_evaluation high   makes code while it runs
builtins.__import__     import_by_name dynamic_evaluation medium imports a module by a text
builtins.globals        namespace  dynamic_evaluation medium reaches names by texts
builtins.locals         namespace  dynamic_evaluation medium reaches names by texts
builtins.vars           namespace  dynamic_evaluation medium reaches names by texts
builtins.__builtins__   namespace  dynamic_evaluation medium reaches builtins by texts
builtins.__loader__     introspection dynamic_evaluation high reaches what imports modules
builtins.__spec__       introspection dynamic_evaluation high reaches what imports modules
builtins.breakpoint     debugger   dynamic_evaluation high   starts a debugger, which runs what it is told
builtins.open           open       filesystem medium opens a file
builtins.file           open       filesystem medium opens a file
builtins.input          input      unknown    low    waits for somebody to type
builtins                builtins   dynamic_evaluation low    reaches builtins by another name

os                      os         process    low    can reach files and processes
os.environ              environment process   medium reads or changes the environment, where secrets are
os.environb             environment process   medium reads or changes the environment, where secrets are
os.getenv               environment process   medium reads the environment, where secrets are
os.putenv               environment process   medium changes the environment
os.system               command    process    high   runs a shell command
os.popen                command    process    high   runs a shell command
os.exec*                command    process    high   becomes another program
os.spawn*               command    process    high   runs another program
os.posix_spawn*         command    process    high   runs another program
os.startfile            command    process    high   runs another program
os.fork*                process    process    high   makes processes
os.kill*                signal     process    high   signals processes
os.abort                signal     process    low    ends the program
os.setuid               identity   process    high   becomes another user
os.setgid               identity   process    high   becomes another group
os.remove*              delete     filesystem high   deletes files
os.unlink               delete     filesystem high   deletes files
os.rmdir                delete     filesystem high   deletes folders
os.rename*              files      filesystem high   replaces files
os.replace              files      filesystem high   replaces files
os.truncate             files      filesystem high   cuts files
os.ch*                  files      filesystem medium changes modes, owners or the current folder
os.lch*                 files      filesystem medium changes modes or owners
os.open                 open       filesystem medium opens a file
os.link                 files      filesystem medium makes names of files
os.symlink              files      filesystem medium makes names of files
os.mk*                  files      filesystem medium makes files or folders
os.list*                files      filesystem medium lists files
os.scandir              files      filesystem medium lists files
os.walk                 files      filesystem medium lists files
os.fwalk                files      filesystem medium lists files
os.stat*                files      filesystem low    looks at files
os.access               files      filesystem low    looks at files
os.path                 path       filesystem low    works on names of files
os.getcwd               path       filesystem low    tells where the program is
os.getpid               os         process    low    tells who the program is
os.cpu_count            os         process    low    tells what machine this is
os.sep                  path       filesystem low    a constant
os.linesep              path       filesystem low    a constant
os.name                 path       filesystem low    a constant
os.urandom              os         process    low    random bytes
os.*                    os_call    process    medium a call of the operating system
posix                   command    process    high   what os is made of
nt                      command    process    high   what os is made of
posixpath               path       filesystem low    works on names of files
_posixsubprocess        command    process    high   runs other programs
subprocess              subprocess process    high   runs other programs
_winapi                 command    process    high   runs other programs
pty                     subprocess process    high   runs other programs
popen2                  subprocess process    high   runs other programs
commands                subprocess process    high   runs other programs
pexpect                 subprocess process    high   runs other programs
sh                      subprocess process    high   runs other programs
plumbum                 subprocess process    high   runs other programs
multiprocessing         multiprocessing process medium makes processes
concurrent              concurrent process    low    makes threads or processes
concurrent.futures.ProcessPoolExecutor multiprocessing process medium makes processes
asyncio.create_subprocess_exec  subprocess process high runs other programs
asyncio.create_subprocess_shell subprocess process high runs shell commands
asyncio.subprocess      subprocess process    high   runs other programs
asyncio.open_*          socket     network    high   opens connections
asyncio.start_*         socket     network    high   serves connections
signal                  signal     process    medium handles or sends signals
psutil                  processes  process    medium looks at and ends processes
resource                limits     process    medium changes limits of the process
atexit                  atexit     process    low    runs functions at the end
sched                   sched      process    low    runs functions later
ctypes                  native     dynamic_evaluation high calls machine code
_ctypes                 native     dynamic_evaluation high calls machine code
cffi                    native     dynamic_evaluation high calls machine code
mmap                    native     dynamic_evaluation high maps memory and files
sys                     sys        process    low    the interpreter's own things
sys.modules             modules    dynamic_evaluation medium reaches modules by texts
sys.meta_path           modules    dynamic_evaluation high changes how modules are found
sys.path*               modules    dynamic_evaluation high changes where modules are found
sys.settrace            trace      dynamic_evaluation high runs code at every line
sys.setprofile          trace      dynamic_evaluation high runs code at every call
sys._getframe           introspection dynamic_evaluation high reaches other functions' variables
sys._current_frames     introspection dynamic_evaluation high reaches other functions' variables
sys.breakpointhook      trace      dynamic_evaluation high starts a debugger
sys.excepthook          trace      dynamic_evaluation medium runs code when something fails
sys.displayhook         trace      dynamic_evaluation medium runs code when something is shown

socket                  socket     network    high   opens connections
_socket                 socket     network    high   opens connections
socketserver            socket     network    high   serves connections
ssl                     socket     network    high   opens connections
select                  socket     network    medium waits for connections
selectors               socket     network    medium waits for connections
http                    http       network    high   speaks HTTP
urllib                  http       network    high   fetches what URLs name
urllib.parse            url        network    low    takes URLs apart
urllib2                 http       network    high   fetches what URLs name
urllib3                 http       network    high   fetches what URLs name
requests                http       network    high   fetches what URLs name
httpx                   http       network    high   fetches what URLs name
aiohttp                 http       network    high   fetches what URLs name
websocket               http       network    high   opens connections
websockets              http       network    high   opens connections
wsgiref                 http       network    high   serves connections
xmlrpc                  http       network    high   calls other machines
ftplib                  protocol   network    high   speaks to other machines
smtplib                 protocol   network    high   sends mail
poplib                  protocol   network    high   reads mail
imaplib                 protocol   network    high   reads mail
nntplib                 protocol   network    high   speaks to other machines
telnetlib               protocol   network    high   speaks to other machines
asyncore                socket     network    high   opens connections
asynchat                socket     network    high   opens connections
paramiko                protocol   network    high   speaks to other machines
fabric                  protocol   network    high   speaks to other machines
boto3                   protocol   network    high   speaks to other machines
grpc                    protocol   network    high   speaks to other machines
dns                     protocol   network    high   speaks to other machines
webbrowser              http       network    high   opens a browser
antigravity             http       network    high   opens a browser
pip                     install    network    high   installs packages, which run code
ensurepip               install    network    high   installs packages, which run code
setuptools              install    process    high   builds packages, which runs code

pathlib                 path       filesystem medium reaches files
pathlib.Pure*           path       filesystem low    works on names of files
shutil                  files      filesystem medium copies, moves and deletes files
shutil.rmtree           delete     filesystem high   deletes folders with all that is in them
shutil.move             files      filesystem high   replaces files
tempfile                files      filesystem medium makes files
glob                    files      filesystem medium lists files
fileinput               files      filesystem medium opens files
linecache               files      filesystem medium opens files
filecmp                 files      filesystem medium opens files
zipfile                 archive    filesystem medium opens and makes files
tarfile                 archive    filesystem medium opens and makes files
zipapp                  archive    filesystem medium makes programs
gzip                    archive    filesystem medium opens and makes files
sqlite3                 database   filesystem medium opens files
dbm                     database   filesystem medium opens files
io.open*                open       filesystem medium opens a file
io.FileIO               open       filesystem medium opens a file
_io                     open       filesystem medium opens files
codecs.open             open       filesystem medium opens a file
fcntl                   files      filesystem medium locks files, controls devices
termios                 devices    filesystem medium controls terminals
pwd                     users      filesystem medium reads who users are
grp                     users      filesystem medium reads who users are
spwd                    users      filesystem high   reads passwords
getpass                 users      process    medium asks for passwords
netrc                   users      filesystem high   reads passwords
keyring                 users      process    high   reads passwords
dotenv                  environment filesystem medium reads secrets
logging.FileHandler     files      filesystem medium writes a file
logging.basicConfig     files      filesystem low    may write a file
logging.handlers        files      filesystem medium writes files or speaks to other machines
logging.config          config     dynamic_evaluation high builds objects of what a text names
xml.etree               xml        filesystem low    may open a file

pickle                  pickle     dynamic_evaluation high runs what its input says
_pickle                 pickle     dynamic_evaluation high runs what its input says
cPickle                 pickle     dynamic_evaluation high runs what its input says
dill                    pickle     dynamic_evaluation high runs what its input says
cloudpickle             pickle     dynamic_evaluation high runs what its input says
joblib                  pickle     dynamic_evaluation high runs what its input says
jsonpickle              pickle     dynamic_evaluation high runs what its input says
shelve                  pickle     dynamic_evaluation high runs what its file says
marshal                 marshal    dynamic_evaluation high makes code of bytes
yaml                    pickle     dynamic_evaluation medium may make objects of what its input says
importlib               import_by_name dynamic_evaluation medium imports a module by a text
imp                     import_by_name dynamic_evaluation high imports a module by a text
zipimport               import_by_name dynamic_evaluation high imports a module by a text
pkgutil                 import_by_name dynamic_evaluation medium imports a module by a text
runpy                   exec       dynamic_evaluation high runs code of another file
code                    exec       dynamic_evaluation high runs code that is made while it runs
codeop                  compile    dynamic_evaluation high makes code while it runs
pdb                     debugger   dynamic_evaluation high runs what it is told
bdb                     debugger   dynamic_evaluation high runs what it is told
trace                   debugger   dynamic_evaluation high runs what it is told
doctest                 exec       dynamic_evaluation high runs code in texts
timeit                  exec       dynamic_evaluation high runs code in texts
profile                 exec       dynamic_evaluation high runs code in texts
cProfile                exec       dynamic_evaluation high runs code in texts
site                    modules    dynamic_evaluation high changes where modules are found
gc                      introspection dynamic_evaluation high reaches all objects there are
tracemalloc.Snapshot    unpickle   dynamic_evaluation high   reads objects of a file, which run code
tracemalloc             introspection dynamic_evaluation low looks at memory
inspect.currentframe    introspection dynamic_evaluation high reaches other functions' variables
inspect.stack           introspection dynamic_evaluation high reaches other functions' variables
inspect.get*            introspection dynamic_evaluation medium reaches into objects
types.FunctionType      function   dynamic_evaluation high makes functions of code
types.LambdaType        function   dynamic_evaluation high makes functions of code
types.CodeType          function   dynamic_evaluation high makes code
operator.attrgetter     attribute_dynamic dynamic_evaluation medium reaches attributes by texts
operator.methodcaller   attribute_dynamic dynamic_evaluation medium calls methods by texts
argparse.FileType       write      filesystem medium opens files
logging.basicConfig     write      filesystem medium can write a file
logging.FileHandler     write      filesystem medium writes a file
json.tool               write      filesystem medium reads and writes files
tokenize.open           open       filesystem medium opens a file
enum.bltns              namespace  dynamic_evaluation high reaches builtins by another name
inspect.signature       eval       dynamic_evaluation medium can evaluate annotations that are texts
unittest.mock           mock       dynamic_evaluation medium replaces functions by texts
typing.get_type_hints   exec       dynamic_evaluation medium evaluates texts
dataclasses.make_dataclass exec    dynamic_evaluation low makes a class of texts
collections.namedtuple  exec       dynamic_evaluation low makes a class of texts
base64                  decode     obfuscation low   makes bytes of a text
binascii                decode     obfuscation low   makes bytes of a text
codecs                  decode     obfuscation low   changes texts by an encoding
zlib                    decode     obfuscation low   unpacks bytes
bz2.open                open       filesystem medium opens a file
lzma.open               open       filesystem medium opens a file
builtins.help           import_by_name dynamic_evaluation medium imports what a text names
bz2                     decode     obfuscation low   unpacks bytes
lzma                    decode     obfuscation low   unpacks bytes
`)

// pyAttributes are names that mean something wherever they are found.
var pyAttributes = map[string]rule{}

func init() {
	for name := range setOf(`__subclasses__ __bases__ __base__ __mro__ mro __globals__ __code__ __closure__ __builtins__ __getattribute__ __reduce__
		__reduce_ex__ __loader__ __spec__ __import__ __subclasshook__ f_globals f_locals f_back f_builtins f_code gi_frame gi_code cr_frame
		ag_frame tb_frame tb_next co_code func_globals func_code im_func __self__ __wrapped__`) {
		pyAttributes[name] = pyInspect
	}
	add := func(c api.Category, names string) {
		for name := range setOf(names) {
			r := pyMethod
			r.category = c
			pyAttributes[name] = r
		}
	}
	add(process, `system popen popen2 popen3 popen4 Popen check_output check_call getoutput getstatusoutput spawnl spawnle spawnlp spawnv spawnve spawnvp
		execl execle execlp execlpe execv execve execvp execvpe fork forkpty kill killpg environ getenv posix_spawn
		subprocess_shell subprocess_exec`)
	add(evaluate, `eval exec execfile load_module exec_module import_module run_module run_path find_spec loads_pickle read_pickle __dict__ __class__`)
	add(files, `read_text write_text read_bytes write_bytes unlink rmdir mkdir touch symlink_to hardlink_to chmod iterdir rglob rmtree copytree
		extractall to_csv read_csv to_excel read_excel to_parquet read_parquet to_pickle read_json to_sql savefig tofile fromfile savetxt loadtxt`)
	add(network, `urlopen urlretrieve connect create_connection create_server open_connection
		sock_connect sendall recv bind listen`)
}

// isModule are the modules that the table is about, those of the first level.
var isModule = func() map[string]bool {
	all := map[string]bool{}
	for name := range pyRules.exact {
		root, _, _ := strings.Cut(name, ".")
		all[root] = true
	}
	return all
}()

// private says that a path leads to a private name of a module that is harmless otherwise. What has two underlines is a
// matter of the language's.
func private(path string) bool {
	root, names, _ := strings.Cut(path, ".")
	if !pySafe[root] {
		return false
	}
	for name := range strings.SplitSeq(names, ".") {
		if strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "__") {
			return true
		}
	}
	return false
}

// pyMatch is the rule for a dotted name.
func pyMatch(path string) (rule, bool) {
	if pySafe[path] {
		return rule{}, false
	}
	if private(path) {
		return pyPrivate, true
	}
	for p := path; ; {
		if r, ok := pyRules.exact[p]; ok {
			return r, true
		}
		if r, ok := pyRules.prefix(p); ok {
			return r, true
		}
		i := strings.LastIndexByte(p, '.')
		if i < 0 {
			return rule{}, false
		}
		if p = p[:i]; pySafe[p] {
			return rule{}, false
		}
		if p == "builtins" { // a name that is none of the table's
			return rule{}, false
		}
	}
}
