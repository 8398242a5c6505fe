package api

import "slices"

// ScanLanguages are what code.scan has parsers for.
var ScanLanguages = []string{"python", "javascript", "shell"}

// MaxAllowedImports bounds the list of a scan or a run.
const MaxAllowedImports = 1000

// ScanParams are code.scan's params.
type ScanParams struct {
	Language string `json:"language"` // python, javascript, shell
	Code     string `json:"code"`     // at most 1 MiB
	// AllowedImports, of python and javascript, are the modules that the code may import, with what is below them;
	// empty means all.
	AllowedImports []string `json:"allowed_imports,omitempty"`
}

// Validate refuses impossible params.
func (p *ScanParams) Validate() error {
	switch {
	case !slices.Contains(ScanLanguages, p.Language):
		return invalid("language", "%q cannot be scanned", p.Language).WithHint("use python, javascript or shell")
	case p.Code == "" || len(p.Code) > MaxCodeBytes:
		return invalid("code", "%d bytes", len(p.Code)).WithHint("give 1 to %d bytes of code", MaxCodeBytes)
	case len(p.AllowedImports) > 0 && p.Language == "shell":
		return invalid("allowed_imports", "given for shell").WithHint("python and javascript have imports")
	}
	return checkImports(p.AllowedImports)
}

// checkImports refuses lists of modules that cannot be meant.
func checkImports(names []string) error {
	if len(names) > MaxAllowedImports {
		return invalid("allowed_imports", "%d names", len(names)).WithHint("give at most %d", MaxAllowedImports)
	}
	for _, n := range names {
		if n == "" || len(n) > 256 {
			return invalid("allowed_imports", "%.40q is no module", n).
				WithHint("name modules as import does, such as json")
		}
	}
	return nil
}

// Severity says what a finding is worth. From medium on, code is risky.
type Severity string

// The severities.
const (
	SeverityLow    Severity = "low"    // worth knowing, harmless by itself
	SeverityMedium Severity = "medium" // reaches beyond the program, or may
	SeverityHigh   Severity = "high"   // acts on the machine, or hides what it does
)

// Category says what a finding is about.
type Category string

// The categories.
const (
	CategoryFiles       Category = "filesystem"
	CategoryNetwork     Category = "network"
	CategoryProcess     Category = "process"
	CategoryEvaluation  Category = "dynamic_evaluation" // what runs is decided while it runs
	CategoryObfuscation Category = "obfuscation"        // hides what it does
	CategoryImport      Category = "import"
	CategoryUnknown     Category = "unknown"    // nothing is known of what it calls
	CategoryUnparsable  Category = "unparsable" // no parser understands it: nothing is known of it
)

// Finding is one place in code that a rule is about.
type Finding struct {
	Rule     string   `json:"rule"` // such as python.subprocess
	Category Category `json:"category"`
	Severity Severity `json:"severity"`
	Line     int      `json:"line"`   // from 1
	Column   int      `json:"column"` // from 1, in bytes
	Text     string   `json:"text"`   // the code there, at most 120 bytes
	Why      string   `json:"why"`    // what the rule is for
}

// ScanImport is a module that code imports, as far as that can be told without running it.
type ScanImport struct {
	Module string `json:"module"` // what is imported
	Line   int    `json:"line"`
	// Allowed is false of a module that is not in allowed_imports.
	Allowed bool `json:"allowed"`
}

// ScanResult is code.scan's result: a hint, not a wall. Code without findings may still do harm.
type ScanResult struct {
	Language string `json:"language"`
	// Risky says that there are findings of medium severity or more, or that the code cannot be parsed.
	Risky     bool         `json:"risky"`
	Findings  []Finding    `json:"findings"` // by line
	Imports   []ScanImport `json:"imports"`
	Truncated bool         `json:"truncated"` // there are more findings than are told
}

// ScanRule is a rule of a scan's.
type ScanRule struct {
	Rule     string   `json:"rule"`
	Category Category `json:"category"`
	Severity Severity `json:"severity"`
	Name     string   `json:"name,omitempty"` // the command, module or function that it is about; with * at the end all that begin so
	Why      string   `json:"why"`
}

// ScanRules are what a scan goes by, as `hutch scan --rules --json` prints them.
type ScanRules struct {
	Rules []ScanRule `json:"rules"`
	// Harmless are commands and modules of which nothing is said; what is in neither is risky.
	Harmless map[string][]string `json:"harmless"`
}

// RuleUnreadable is the finding of code that no parser comes to the end of: it nests without end, or takes too long.
// RuleDepth is that of code the rest of which is not looked at.
const (
	RuleUnreadable = "text.unparsable"
	RuleDepth      = "text.depth"
)

// ScanNotBegun is the exit status of a hutch-scan that could not be confined, and has not read anything.
const ScanNotBegun = 3

// Bounds of a scan's result.
const (
	MaxFindings    = 500
	MaxScanImports = 500
)
