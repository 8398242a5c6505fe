package host

import (
	"bytes"
	"crypto/md5" //nolint:gosec // the digest that dpkg keeps
	"encoding/hex"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Programs of Debian's keep parts of themselves in /etc, as configuration files (dpkg's conffiles): chromium does not
// start without its own, mvn has its class path there, R its environment. One that is as its package brought it is no
// secret: anybody can download it. One that was changed is hidden, unless EtcAllowed has it.

// dpkgStatus lists the configuration files of each package with their digests (deb-conffiles(5), dpkg(1)).
const dpkgStatus = "/var/lib/dpkg/status"

// maxStatusBytes bounds that file: with 3,000 packages it is below 5 MB.
const maxStatusBytes = 64 << 20

// maxLinks bounds what is looked at below one folder of /etc in search of links.
const maxLinks = 10_000

// notConffiles are not shown though a package brings them: the skeleton has its own, and in /etc/ssh lie the host's
// keys.
var notConffiles = map[string]bool{
	"/etc/passwd": true, "/etc/group": true, "/etc/nsswitch.conf": true, "/etc/hosts": true, "/etc/resolv.conf": true,
	"/etc/hostname": true, "/etc/gitconfig": true, "/etc/machine-id": true, "/etc/mtab": true,
	"/etc/ld.so.preload": true, "/etc/ssh/ssh_config": true, "/etc/ssh/moduli": true,
}

// mayHoldSecret reports whether a file is named like one with something secret in it: a package of one's own may bring
// such a one.
func mayHoldSecret(p string) bool {
	return slices.ContainsFunc([]string{"auth", "token", "secret", "passw", "credential", "/profile.d/"},
		func(word string) bool {
			return strings.Contains(strings.ToLower(p), word)
		})
}

// conffiles reads the list: paths below /etc and the MD5 that each had in its package.
func (r Root) conffiles() map[string]string {
	st, err := os.Stat(r.path(dpkgStatus))
	if err != nil || st.Size() > maxStatusBytes {
		return nil
	}
	text, err := os.ReadFile(r.path(dpkgStatus))
	if err != nil {
		return nil
	}
	found := map[string]string{}
	for {
		_, rest, ok := bytes.Cut(text, []byte("\nConffiles:\n"))
		if !ok {
			return found
		}
		// A line for each, which begins with a space: the path, the digest, and perhaps "obsolete".
		for len(rest) > 0 && rest[0] == ' ' {
			var line []byte
			line, rest, _ = bytes.Cut(rest, []byte("\n"))
			f := strings.Fields(string(line))
			if len(f) >= 2 && len(f[1]) == 2*md5.Size && strings.HasPrefix(f[0], "/etc/") && path.Clean(f[0]) == f[0] &&
				!notConffiles[f[0]] && !mayHoldSecret(f[0]) {
				found[f[0]] = f[1]
			}
		}
		text = text[len(text)-len(rest)-1:] // with the end of the last line in front
	}
}

// visitConffiles adds the configuration files of packages, and the links beside them that lead to what is shown: php
// has a folder of links to the modules that are switched on.
func (v *View) visitConffiles() {
	v.note(dpkgStatus)
	v.conffiles, v.folders = v.host.conffiles(), map[string]bool{}
	tops, folders := map[string]bool{}, map[string]bool{"/etc": true}
	for _, p := range slices.Sorted(maps.Keys(v.conffiles)) {
		if v.copied(p) || slices.ContainsFunc(strings.Split(p, "/"), neverShown) || !v.inFolders(p, folders) {
			continue
		}
		if st := v.note(p); st.mode&unix.S_IFMT == unix.S_IFREG && st.mode&0o004 != 0 && st.size <= maxSourceBytes {
			v.nodes = append(v.nodes, node{path: p, kind: unix.S_IFREG, mode: shownMode(st.mode), md5: v.conffiles[p]})
		}
		for dir := path.Dir(p); dir != "/etc"; dir = path.Dir(dir) {
			v.folders[dir] = true
			tops[dir] = path.Dir(dir) == "/etc"
		}
	}
	for _, top := range slices.Sorted(maps.Keys(tops)) {
		if tops[top] && top != "/etc/systemd" { // where instances of services have the names of people and networks
			v.visitLinks(top)
		}
	}
}

// inFolders reports whether what p is in are folders, and no links to some. known is what was looked at.
func (v *View) inFolders(p string, known map[string]bool) bool {
	dir := path.Dir(p)
	is, ok := known[dir]
	if !ok {
		is = v.host.isDir(dir) && v.inFolders(dir, known)
		known[dir] = is
	}
	return is
}

// visitLinks adds the links below a folder of /etc that lead to what is shown.
func (v *View) visitLinks(top string) {
	seen := 0
	_ = filepath.WalkDir(v.host.path(top), func(full string, d fs.DirEntry, err error) error {
		p := "/" + strings.TrimPrefix(strings.TrimPrefix(full, v.host.Dir), "/")
		switch seen++; {
		case seen > maxLinks:
			return fs.SkipAll
		case err != nil: // a folder that may not be read
			return nil
		case d.IsDir() && (neverShown(d.Name()) || v.copied(p) || v.note(p).mode&0o005 != 0o005):
			return fs.SkipDir
		case d.Type() == fs.ModeSymlink && !neverShown(d.Name()) && !v.copied(p):
			v.note(p)
			v.visitLink(p)
		}
		return nil
	})
}

// copied reports whether p is copied because EtcAllowed has it.
func (v *View) copied(p string) bool {
	return slices.ContainsFunc(v.roots, func(r string) bool { return Within(p, r) })
}

// unmodified reports whether data has the digest that its package gave it.
func unmodified(data []byte, digest string) bool {
	sum := md5.Sum(data) //nolint:gosec // see above
	return hex.EncodeToString(sum[:]) == digest
}
