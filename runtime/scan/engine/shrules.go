package engine

import "github.com/hutch-sh/hutch/runtime/api"

// Rules of shell that are about its syntax.
var (
	shSyntax = newRule("shell.syntax", api.CategoryUnparsable, high,
		"it is no shell that can be parsed: what it does is not known")
	shPieces   = newRule("shell.pieces", hides, high, "the name of a command is put together of pieces")
	shVariable = newRule("shell.command_dynamic", evaluate, high,
		"which command runs is decided while the script runs")
	shSubst    = newRule("shell.substitution", evaluate, low, "output of a command becomes part of another")
	shIndirect = newRule("shell.indirect", evaluate, medium,
		"which variable is meant is decided while the script runs")
	shPrompt = newRule("shell.prompt", evaluate, high, "runs what is in a variable")
	shVar    = newRule("shell.variable", evaluate, high,
		"this variable changes which programs run, or what they load")
	shWrite     = newRule("shell.write", files, medium, "writes a file")
	shWriteAway = newRule("shell.write_elsewhere", files, high,
		"writes a file that may be outside of the working folder")
	shRead      = newRule("shell.read", files, low, "reads a file below the working folder")
	shElsewhere = newRule("shell.read_elsewhere", files, medium,
		"reads a file that may be outside of the working folder")
	shSocket  = newRule("shell.socket", network, high, "bash connects to another machine by this name")
	shPiped   = newRule("shell.pipe_interpreter", evaluate, high, "an interpreter runs what another command writes")
	shHere    = newRule("shell.here_interpreter", evaluate, medium, "an interpreter runs a text")
	shHereDyn = newRule("shell.here_dynamic", evaluate, high,
		"an interpreter runs a text that is made while the script runs")
	shCode    = newRule("shell.interpreter_code", evaluate, medium, "an interpreter runs a text")
	shCodeDyn = newRule("shell.interpreter_dynamic", evaluate, high,
		"an interpreter runs a text that cannot be looked at")
	shScript = newRule("shell.interpreter_file", evaluate, medium,
		"an interpreter runs a file, which is not looked at")
	shEval     = newRule("shell.eval", evaluate, high, "runs a text as commands")
	shUnknown  = newRule("shell.command_unknown", unknown, medium, "nothing is known of what this command does")
	shFunction = newRule("shell.function", evaluate, low, "a command of the script's own")
	shLeave    = newRule("shell.leave", files, medium,
		"leaves the working folder: what paths mean from then on is not known")
	shRename = newRule("shell.rename", evaluate, high, "gives the name of a command to another one")
	shArith  = newRule("shell.arithmetic", evaluate, low,
		"arithmetic evaluates what variables hold, with commands in their subscripts")
	shArithData = newRule("shell.arithmetic_data", evaluate, medium,
		"arithmetic evaluates what was read, and runs commands in its subscripts")
	shArithText = newRule("shell.subscript", evaluate, high, "a text holds a subscript whose commands bash runs")
	shIdentity  = newRule("shell.identity", process, high, "runs a command as somebody else")
	shWrapper   = newRule("shell.wrapper", process, high, "runs a command in another way")
	shFind      = newRule("shell.find", files, medium, "deletes, writes or runs something for each file that it finds")
)

// shPure only compute, or change the shell itself.
var shPure = setOf(`echo printf true false test [ : pwd expr seq sleep basename dirname tr rev yes let local declare typeset export readonly unset
	set shift return exit break continue getopts wait times type hash read umask ulimit shopt numfmt factor nproc whoami id uname arch
	logname groups tty cal cd pushd popd dirs jobs fg bg unalias caller mapfile readarray which locale`)

// shAssigns set the variables that they are told, and shSubscripts evaluate what they are told as the name of one.
var (
	shAssigns    = setOf(`read printf mapfile readarray getopts wait`)
	shSubscripts = setOf(`test [ let unset declare local typeset export readonly`)
)

// shReaders read the files that they are told.
var shReaders = setOf(`cat head tail wc sort uniq cut grep egrep fgrep rg nl tac paste join comm fold fmt column ls dir stat file du df tree
	realpath readlink md5sum sha1sum sha256sum sha512sum cksum sum od xxd hexdump strings diff cmp jq yq less more zcat zgrep bzcat xzcat expand
	unexpand iconv b2sum base32 tsort look`)

// shInterpreters run code; the languages that are looked at have a name. code are the options that a text of code
// follows.
var shInterpreters = map[string]struct{ language, code string }{
	"sh": {"shell", "c"}, "bash": {"shell", "c"}, "dash": {"shell", "c"}, "ash": {"shell", "c"}, "zsh": {"shell", "c"},
	"ksh": {"shell", "c"}, "mksh": {"shell", "c"},
	"rbash": {"shell", "c"}, "fish": {"", "c"}, "csh": {"", "c"}, "tcsh": {"", "c"}, "python": {"python", "c"},
	"python2": {"python", "c"}, "python3": {"python", "c"}, "pypy": {"python", "c"}, "pypy3": {"python", "c"},
	"ipython": {"python", "c"}, "node": {"javascript", "ep"}, "nodejs": {"javascript", "ep"}, "bun": {"", "e"},
	"deno": {"", ""}, "perl": {"", "eE"}, "ruby": {"", "e"},
	"php": {"", "r"}, "lua": {"", "e"}, "luajit": {"", "e"}, "tclsh": {"", ""}, "expect": {"", "c"},
	"Rscript": {"", "e"}, "R": {"", "e"}, "julia": {"", "e"}, "pwsh": {"", "c"},
	"osascript": {"", "e"}, "groovy": {"", "e"}, "scala": {"", "e"}, "gdb": {"", ""}, "dc": {"", "e"}, "ed": {"", ""},
	"ex": {"", "c"}, "vi": {"", "c"}, "vim": {"", "c"}, "emacs": {"", ""}, "m4": {"", ""},
}

// shWrappers run the command that their arguments are: how many arguments that are no options come before it.
var shWrappers = map[string]int{
	"env": 0, "nohup": 0, "nice": 0, "ionice": 0, "time": 0, "command": 0, "builtin": 0, "exec": 0, "xargs": 0,
	"stdbuf": 0, "setsid": 0, "busybox": 0, "toybox": 0,
	"timeout": 1, "watch": 0, "parallel": 0, "chronic": 0, "unbuffer": 0, "catchsegv": 0, "setarch": 0, "taskset": 1,
	"chrt": 1, "flock": 1, "sudo": 0, "doas": 0,
	"unshare": 0, "chroot": 1, "strace": 0, "ltrace": 0, "script": 0, "coproc": 0, "ld.so": 0, "numactl": 0,
	"prlimit": 0, "setpriv": 0, "runuser": 0, "su": 0, "eatmydata": 0, "faketime": 1,
}

// shRules are what other commands are.
var shRules = rulesOf("shell", `
rm            delete   filesystem high   deletes files
rmdir         delete   filesystem high   deletes folders
shred         delete   filesystem high   destroys files
unlink        delete   filesystem high   deletes files
truncate      write    filesystem high   cuts files
dd            write    filesystem high   writes files and devices
mkfs*         device   filesystem high   erases disks
fdisk         device   filesystem high   changes disks
parted        device   filesystem high   changes disks
mount         device   filesystem high   changes what is mounted
umount        device   filesystem high   changes what is mounted
mv            write    filesystem medium renames files
cp            write    filesystem medium copies files
ln            write    filesystem medium makes names of files
mkdir         write    filesystem medium makes folders
touch         write    filesystem medium makes files
tee           write    filesystem medium writes files
install       write    filesystem medium copies files
split         write    filesystem medium writes files
csplit        write    filesystem medium writes files
mktemp        write    filesystem medium makes files
mknod         write    filesystem high   makes devices
mkfifo        write    filesystem medium makes pipes
chmod         mode     filesystem high   changes who may do what with files
chown         mode     filesystem high   changes whose files are
chgrp         mode     filesystem high   changes whose files are
chattr        mode     filesystem high   changes files
setfacl       mode     filesystem high   changes who may do what with files
setcap        mode     filesystem high   gives programs rights
patch         write    filesystem medium changes files
tar           archive  filesystem medium packs and unpacks files, and can run commands
zip           archive  filesystem medium packs files, and can run commands
unzip         archive  filesystem medium unpacks files
gzip          archive  filesystem medium replaces files
gunzip        archive  filesystem medium replaces files
bzip2         archive  filesystem medium replaces files
xz            archive  filesystem medium replaces files
cpio          archive  filesystem medium unpacks files
sqlite3       database filesystem medium opens files, and can run commands
locate        read_elsewhere filesystem medium lists files of the machine
getent        read_elsewhere filesystem medium reads who users are
curl          http     network    high   fetches what URLs name
wget          http     network    high   fetches what URLs name
aria2c        http     network    high   fetches what URLs name
http          http     network    high   speaks HTTP
lynx          http     network    high   fetches what URLs name
nc            socket   network    high   opens connections
ncat          socket   network    high   opens connections
netcat        socket   network    high   opens connections
socat         socket   network    high   opens connections
telnet        socket   network    high   opens connections
openssl       socket   network    medium can open connections
ssh           remote   network    high   runs commands on other machines
scp           remote   network    high   copies from and to other machines
sftp          remote   network    high   copies from and to other machines
rsync         remote   network    high   copies from and to other machines
ftp           remote   network    high   copies from and to other machines
ping          socket   network    medium sends packets
dig           dns      network    high   asks for names, which tells them
nslookup      dns      network    high   asks for names, which tells them
host          dns      network    high   asks for names, which tells them
nmap          socket   network    high   looks at other machines
ip            machine  network    high   changes the network
ifconfig      machine  network    high   changes the network
iptables      machine  network    high   changes the network
nft           machine  network    high   changes the network
mail          remote   network    high   sends mail
sendmail      remote   network    high   sends mail
git           git      process    medium can fetch, change files and run what a configuration says
svn           git      network    high   fetches files
hg            git      process    medium can fetch, change files and run what a configuration says
pip           install  network    high   installs packages, which run code
pip3          install  network    high   installs packages, which run code
pipx          install  network    high   installs packages, which run code
uv            install  network    high   installs packages, which run code
poetry        install  network    high   installs packages, which run code
conda         install  network    high   installs packages, which run code
npm           install  network    high   installs packages, which run code
npx           install  network    high   installs packages, which run code
yarn          install  network    high   installs packages, which run code
pnpm          install  network    high   installs packages, which run code
gem           install  network    high   installs packages, which run code
bundle        install  network    high   installs packages, which run code
cargo         build    process    high   builds, which runs code
go            build    process    high   builds, which runs code
make          build    process    high   runs what files say
cmake         build    process    high   runs what files say
ninja         build    process    high   runs what files say
meson         build    process    high   runs what files say
gradle        build    process    high   runs what files say
mvn           build    process    high   runs what files say
ant           build    process    high   runs what files say
gcc           build    process    medium makes programs
cc            build    process    medium makes programs
clang         build    process    medium makes programs
ld            build    process    medium makes programs
java          build    process    high   runs programs
apt*          install  process    high   changes what the machine has
dpkg          install  process    high   changes what the machine has
yum           install  process    high   changes what the machine has
dnf           install  process    high   changes what the machine has
apk           install  process    high   changes what the machine has
brew          install  process    high   changes what the machine has
snap          install  process    high   changes what the machine has
docker        container process   high   runs programs, with rights that the user may not have
podman        container process   high   runs programs
kubectl       container process   high   runs programs on other machines
hutch         container process   high   runs programs
systemctl     service  process    high   changes what the machine runs
service       service  process    high   changes what the machine runs
launchctl     service  process    high   changes what the machine runs
crontab       service  process    high   runs commands later
at            service  process    high   runs commands later
batch         service  process    high   runs commands later
kill          signal   process    high   signals processes
killall       signal   process    high   signals processes
pkill         signal   process    high   signals processes
reboot        machine  process    high   changes the machine
shutdown      machine  process    high   changes the machine
halt          machine  process    high   changes the machine
sysctl        machine  process    high   changes the machine
insmod        machine  process    high   changes the kernel
modprobe      machine  process    high   changes the kernel
useradd       users    process    high   changes who users are
userdel       users    process    high   changes who users are
usermod       users    process    high   changes who users are
passwd        users    process    high   changes who users are
chsh          users    process    high   changes who users are
ps            processes process   medium looks at processes
top           processes process   medium looks at processes
lsof          processes process   medium looks at processes
env           environment process medium shows the environment, where secrets are
printenv      environment process medium shows the environment, where secrets are
history       environment process medium shows what was typed
gpg           secrets  process    high   uses keys
ssh-add       secrets  process    high   uses keys
ssh-keygen    secrets  process    high   makes and shows keys
security      secrets  process    high   reads passwords
pass          secrets  process    high   reads passwords
aws           remote   network    high   speaks to other machines
gcloud        remote   network    high   speaks to other machines
az            remote   network    high   speaks to other machines
gh            remote   network    high   speaks to other machines
disown        process  process    medium lets a process go on alone
screen        process  process    high   runs commands
tmux          process  process    high   runs commands
eval          eval     dynamic_evaluation high runs a text as commands
source        eval     dynamic_evaluation high runs a file as commands
.             eval     dynamic_evaluation high runs a file as commands
trap          trap     dynamic_evaluation medium runs a text as commands later
alias         alias    dynamic_evaluation medium changes what commands are
enable        eval     dynamic_evaluation high loads machine code
complete      trap     dynamic_evaluation medium runs a text as commands later
bind          trap     dynamic_evaluation medium runs a text as commands later
awk           program  dynamic_evaluation medium its programs can run commands and write files
gawk          program  dynamic_evaluation medium its programs can run commands and write files
mawk          program  dynamic_evaluation medium its programs can run commands and write files
sed           program  dynamic_evaluation medium its programs can run commands and write files
base64        decode   obfuscation low   makes bytes of a text
xdg-open      open     process    high   opens a file by what the desktop says
open          open     process    high   opens a file by what the desktop says
`)

// shVars are variables that decide what runs.
var shVars = setOf(`PATH CDPATH RIPGREP_CONFIG_PATH LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT IFS BASH_ENV ENV PROMPT_COMMAND PS0 PS1 PS4 SHELLOPTS BASHOPTS PYTHONSTARTUP PYTHONPATH PYTHONHOME
	PYTHONINSPECT NODE_OPTIONS NODE_PATH PERL5OPT PERL5LIB PERL5DB RUBYOPT RUBYLIB GIT_SSH GIT_SSH_COMMAND GIT_EXEC_PATH GIT_PAGER GIT_EDITOR
	GIT_EXTERNAL_DIFF PAGER EDITOR VISUAL LESSOPEN LESSCLOSE MANPAGER BROWSER HOME SHELL DYLD_INSERT_LIBRARIES GCONV_PATH`)
