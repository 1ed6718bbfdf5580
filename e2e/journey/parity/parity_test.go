package parity

import (
	"os"
	"path/filepath"
	"testing"
)

func TestNormalise(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"NAME   READY   AGE\nweb-6d4c9f7b5c-x2b4z   1/1   2m3s":   "NAME READY AGE\nweb-<hash>-<id> 1/1 <age>",
		"NAME    READY   AGE   CLUSTER\nweb     1/1     12s   m1": "NAME READY AGE\nweb 1/1 <age>",
		"NAME    CLUSTER   NODE\nweb     m1        fake-0.m2":     "NAME NODE\nweb <node>",
		"on fake-1 at 10.1.2.3":                                   "on <node> at <ip>",
		"  \"isthmus.dev/cluster\": \"m1\"":                       "",
		"app=web,isthmus.dev/cluster=m1,pod-template-hash=6d4c9f": "app=web,pod-template-hash=<hash>",
		"namespaces \"parity-1\"":                                 "namespaces \"<ns>\"",
		"2026-11-30T12:00:01Z":                                    "<time>",
		"hello from a container in cluster m2":                    "hello from a container in cluster <cluster>",
		"<unknown>  5s ":                                          "<age> <age>",
		"exit code 7":                                             "exit code 7",
		"I1201 01:06:32.729319   18803 request.go:752] \"Waited before sending request\" delay=\"1.2s\"\ndone": "done",
		"W1201 01:06:32.729319   18803 reflector.go:7] ended":                                                  "W1201 01:06:32.729319 18803 reflector.go:7] ended",
	} {
		if got := Normalise(in, "parity-1"); got != want && (want != "" || got != "") {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b      string
		unordered bool
		want      string
	}{
		{"a\nb\n", "a\nb", false, ""},
		{"a\nb", "b\na", true, ""},
		{"a\nb", "a\nc", false, "- b\n+ c\n"},
		{"", "a", false, "+ a\n"},
		{"a", "", false, "- a\n"},
		{"a\nb\nc", "a\nc", false, "- b\n"},
	} {
		if got := Compare(c.a, c.b, c.unordered); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.a, c.b, got, c.want)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	const good = "[{name: g, commands: [{name: a, run: x}]}]"
	for name, files := range map[string][2]string{
		"an unknown command": {good, "[{command: g/b, clause: c, because: b, diff: d}]"},
		"no clause":          {good, "[{command: g/a, because: b, diff: d}]"},
		"an unknown field":   {"[{name: g, other: 1}]", "[]"},
		"a name twice":       {"[{name: g, commands: [{name: a, run: x}, {name: a, run: y}]}]", "[]"},
	} {
		dir := t.TempDir()
		for i, file := range []string{"c", "d"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(files[i]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := Load(filepath.Join(dir, "c"), filepath.Join(dir, "d")); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFilesOfThisFolder(t *testing.T) {
	t.Parallel()
	groups, _, err := Load("commands.yaml", "differences.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(groups) == 0 {
		t.Error("no commands")
	}
}
