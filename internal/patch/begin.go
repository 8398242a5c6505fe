package patch

import (
	"errors"
	"fmt"
	"strings"
)

// begin parses the form that begins with "*** Begin Patch".
func (p *parser) begin() error {
	for p.at++; p.more(); {
		l := strings.TrimSpace(p.peek(0))
		if l == "*** End Patch" {
			return nil
		}
		var err error
		if name, ok := strings.CutPrefix(l, "*** Add File: "); ok {
			err = p.addFile(name)
		} else if name, ok := strings.CutPrefix(l, "*** Delete File: "); ok {
			p.files = append(p.files, File{Path: name, Kind: Deleted, loose: true})
			p.at++
		} else if name, ok := strings.CutPrefix(l, "*** Update File: "); ok {
			err = p.updateFile(name)
		} else if l == "" {
			p.at++
		} else {
			err = fmt.Errorf("%.100q instead of *** Add File, *** Delete File, *** Update File or *** End Patch", l)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("no *** End Patch: the patch is incomplete")
}

func (p *parser) addFile(name string) error {
	var h Hunk
	for p.at++; p.more() && !strings.HasPrefix(p.peek(0), "*** "); p.at++ {
		text, ok := strings.CutPrefix(p.peek(0), "+")
		if !ok {
			return fmt.Errorf("%.100q in a new file does not begin with +", p.peek(0))
		}
		h.lines = append(h.lines, line{kind: '+', text: text})
	}
	p.files = append(p.files, File{Path: name, Kind: Added, Hunks: []Hunk{h}, loose: true})
	return nil
}

func (p *parser) updateFile(name string) error {
	f := File{Path: name, Kind: Modified, loose: true}
	p.at++
	if to, ok := strings.CutPrefix(strings.TrimSpace(p.peek(0)), "*** Move to: "); ok {
		f.Kind, f.From, f.Path = Renamed, name, to
		p.at++
	}
	var h Hunk
	end := func() {
		if len(h.lines) > 0 {
			f.Hunks = append(f.Hunks, h)
			h = Hunk{}
		}
	}
	for ; p.more(); p.at++ {
		l := p.peek(0)
		switch {
		case strings.TrimSpace(l) == "*** End of File":
			h.atEnd = true
			continue
		case strings.HasPrefix(l, "*** "):
			end()
			return p.updated(f)
		case strings.HasPrefix(l, "@@"):
			end()
			if anchor := strings.TrimSpace(strings.TrimPrefix(l, "@@")); anchor != "" {
				h.anchors = append(h.anchors, anchor)
			}
			continue
		}
		kind, text := byte(' '), l
		if l != "" && l != "\r" {
			kind, text = l[0], l[1:]
		}
		if kind != ' ' && kind != '+' && kind != '-' {
			return fmt.Errorf("%.100q begins with neither a space nor + nor -", l)
		}
		h.lines = append(h.lines, line{kind: kind, text: text})
	}
	end()
	return p.updated(f)
}

func (p *parser) updated(f File) error {
	if len(f.Hunks) == 0 && f.Kind == Modified {
		return fmt.Errorf("%.200q has no change", f.Path)
	}
	p.files = append(p.files, f)
	return nil
}
