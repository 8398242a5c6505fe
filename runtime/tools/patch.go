package tools

import (
	"context"
	"fmt"
	"strings"

	"github.com/hutch-sh/hutch/runtime/api"
)

func applyPatch() (*tool, error) {
	return define[api.ToolApplyPatch, api.ToolPatched](api.Tool{
		Name: api.ToolNameApplyPatch, Title: "Apply patch",
		Description: "Changes files by a patch: a unified diff, or one between *** Begin Patch and *** End Patch. It may change, add, delete and rename many files; " +
			"all of it is applied or nothing.",
		Destructive: true,
	}, fileTimeout, func(ctx context.Context, c *call, a api.ToolApplyPatch) (answer, error) {
		r, err := c.set.cfg.Sandboxes.Files.Patch(ctx, c.on(), a)
		if err != nil {
			return answer{}, err
		}
		var text strings.Builder
		if r.DryRun {
			text.WriteString("[nothing was changed: dry_run]\n")
		}
		for _, f := range r.Files {
			fmt.Fprintf(&text, "%s %s", f.Kind, shown(f.Path))
			if f.From != "" {
				fmt.Fprintf(&text, " from %s", shown(f.From))
			}
			if f.Fuzz > 0 || f.Offset != 0 {
				fmt.Fprintf(&text, " (%s did not fit exactly, %d lines away)", counted(int64(f.Fuzz), "line"), f.Offset)
			}
			text.WriteByte('\n')
		}
		return answer{text: text.String(), result: r}, nil
	})
}
