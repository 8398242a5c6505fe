package sdk

import (
	"regexp"
	"strings"
)

// rewrites make a module for threads of one for asyncio, in this order.
var rewrites = []struct {
	old *regexp.Regexp
	new string
}{
	{regexp.MustCompile(`\b__a(enter|exit|iter)__\b`), "__${1}__"},
	{regexp.MustCompile(`\basync (def|with|for)\b`), "$1"},
	{regexp.MustCompile(`\bawait `), ""},
	{regexp.MustCompile(`\bAsync([A-Z])`), "$1"},
	{regexp.MustCompile(`\bhutch/_async\b`), "hutch/_sync"},
}

// blocking is the module for threads of one for asyncio, whose text says in which words await and async may stand.
func blocking(text string) string {
	for _, r := range rewrites {
		text = r.old.ReplaceAllString(text, r.new)
	}
	const mark = "# Made by make generate"
	if strings.HasPrefix(text, mark) {
		return text
	}
	return mark + " of hutch/_async: change that.\n" + text
}
