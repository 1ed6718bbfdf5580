package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestVerify(t *testing.T) {
	const other = "# Other\n\n## One, two & `three`\n\n## Again\n## Again\n<a id=\"here\"></a>\n```\n# not a heading\n```\n"
	for _, tt := range []struct{ name, text, fault string }{
		{"file", "[x](docs/other.md)", ""},
		{"folder", "[x](docs)", ""},
		{"heading", "[x](docs/other.md#one-two--three)", ""},
		{"second heading of a name", "[x](docs/other.md#again-1)", ""},
		{"anchor", "[x](docs/other.md#here)", ""},
		{"own heading", "# Mine\n[x](#mine)", ""},
		{"from the root", "[x](/docs/other.md)", ""},
		{"with a title", "[x](docs/other.md \"title\")", ""},
		{"reference", "[x]: docs/other.md", ""},
		{"elsewhere", "[x](https://example.com/nothing)", ""},
		{"in a span of code", "`[x](nothing.md)`", ""},
		{"in a block of code", "```\n[x](nothing.md)\n```", ""},
		{"in indented code", "    [x](nothing.md)", ""},
		{"no file", "[x](docs/nothing.md)", "README.md:1: link \"docs/nothing.md\""},
		{"no file, by reference", "a\n[x]: nothing.md", "README.md:2"},
		{"no file after a block", "```\n```\n[x](nothing.md)", "README.md:3"},
		{"no heading", "[x](docs/other.md#nothing)", "no heading"},
		{"a heading in code", "[x](docs/other.md#not-a-heading)", "no heading"},
		{"above the root", "[x](../nothing.md)", "there is no"},
		{"second link of a line", "[x](docs/other.md) and [y](nothing.md)", "nothing.md"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			count, err := verify(fstest.MapFS{
				"README.md":     {Data: []byte(tt.text)},
				"docs/other.md": {Data: []byte(other)},
				".cache/bad.md": {Data: []byte("[x](nothing.md)")},
			})
			if count != 2 {
				t.Errorf("%d documents", count)
			}
			if (err == nil) != (tt.fault == "") || err != nil && !strings.Contains(err.Error(), tt.fault) {
				t.Errorf("fault %v, want %q", err, tt.fault)
			}
		})
	}
}

func TestVerifyNothing(t *testing.T) {
	if _, err := verify(fstest.MapFS{"a.txt": {}}); err == nil {
		t.Error("a tree without documents passes")
	}
}
