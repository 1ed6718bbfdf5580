package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseRefuses(t *testing.T) {
	const good = "{file: pkg/x/x.go, find: a, replace: b, run: TestX, why: it matters}"
	if m, err := parse([]byte("mutations: [" + good + "]")); err != nil || m[0].Package != "./pkg/x" {
		t.Fatalf("%+v, %v", m, err)
	}
	for name, list := range map[string]string{
		"empty":          "mutations: []",
		"unknown field":  "mutations: [{file: pkg/x/x.go, find: a, replace: b, run: T, why: w, tests: T}]",
		"a test":         "mutations: [{file: pkg/x/x_test.go, find: a, replace: b, run: T, why: w}]",
		"outside":        "mutations: [{file: ../x.go, find: a, replace: b, run: T, why: w}]",
		"absolute":       "mutations: [{file: /x.go, find: a, replace: b, run: T, why: w}]",
		"no find":        "mutations: [{file: x.go, replace: b, run: T, why: w}]",
		"no change":      "mutations: [{file: x.go, find: a, replace: a, run: T, why: w}]",
		"no tests":       "mutations: [{file: x.go, find: a, replace: b, why: w}]",
		"no reason":      "mutations: [{file: x.go, find: a, replace: b, run: T}]",
		"package by URL": "mutations: [{file: x.go, find: a, replace: b, run: T, why: w, package: example.com/x}]",
	} {
		if _, err := parse([]byte(list)); !errors.Is(err, errList) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every committed mutation must fit the file that it names.
func TestCommittedMutationsFit(t *testing.T) {
	mutations, err := parse(committed)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutations {
		source, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(m.File)))
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err := m.apply(string(source)); err != nil {
			t.Errorf("%s (%s): %v", m.File, m.Why, err)
		}
	}
}

func TestApply(t *testing.T) {
	m := Mutation{File: "x.go", Find: "a < b", Replace: "a > b"}
	got, err := m.apply("package x\n\nvar c = a < b\n")
	if err != nil || got != "package x\n\nvar c = a > b\n" {
		t.Errorf("%q, %v", got, err)
	}
	for name, source := range map[string]string{"absent": "package x\n", "twice": "package x\n\nvar c, d = a < b, a < b\n"} {
		if _, err := m.apply(source); !errors.Is(err, errStale) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.Replace = "a >"
	if _, err := m.apply("package x\n\nvar c = a < b\n"); err == nil || errors.Is(err, errStale) {
		t.Errorf("a replacement that is not Go: %v", err)
	}
}

// small is a module with one function and two tests of different strength.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/small\n\ngo 1.26\n",
		"x/x.go": "package x\n\nfunc Less(a, b int) bool { return a < b }\n",
		"x/x_test.go": "package x\n\nimport \"testing\"\n\n" +
			"func TestStrong(t *testing.T) {\n\tif !Less(1, 2) || Less(2, 1) || Less(1, 1) {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n\n" +
			"func TestWeak(t *testing.T) {\n\tif !Less(1, 2) {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTry(t *testing.T) {
	root := small(t)
	before, err := os.ReadFile(filepath.Join(root, "x", "x.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, find, replace, run string
		want                     Verdict
	}{
		{"caught", "a < b", "a <= b", "TestStrong", Caught},
		{"survived", "a < b", "a <= b", "TestWeak", Survived},
		{"panics", "return a < b", `panic("x")`, "TestWeak", Caught},
		{"does not compile", "a < b", "a < c", "TestStrong", DoesNotCompile},
		{"stale", "a > b", "a < b", "TestStrong", Stale},
		{"not Go", "a < b }", "a < b", "TestStrong", Broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Mutation{File: "x/x.go", Package: "./x", Find: tt.find, Replace: tt.replace, Run: tt.run}
			if got, detail := try(t.Context(), root, m, time.Minute); got != tt.want {
				t.Errorf("verdict %s, want %s\n%s", got, tt.want, detail)
			}
		})
	}
	after, err := os.ReadFile(filepath.Join(root, "x", "x.go"))
	if err != nil || string(after) != string(before) {
		t.Errorf("the tree was written to: %q, %v", after, err)
	}
}

func TestBaseline(t *testing.T) {
	root := small(t)
	m := Mutation{File: "x/x.go", Package: "./x", Find: "a < b", Replace: "a <= b", Run: "TestStrong"}
	if err := baseline(t.Context(), root, []Mutation{m}, time.Minute); err != nil {
		t.Error(err)
	}
	m.Run = "TestNowhere"
	if err := baseline(t.Context(), root, []Mutation{m}, time.Minute); err == nil || !strings.Contains(err.Error(), "no test") {
		t.Errorf("a pattern that matches nothing: %v", err)
	}
}

func TestJudge(t *testing.T) {
	failed := exec.CommandContext(t.Context(), "false").Run()
	for _, tt := range []struct {
		name, output string
		err          error
		want         Verdict
	}{
		{"passes", "ok  \tx\t0.1s\n", nil, Survived},
		{"fails", "--- FAIL: TestX (0.00s)\nFAIL\nFAIL\tx\t0.1s\n", failed, Caught},
		{"exits", "FAIL\tx\t0.1s\n", failed, Caught},
		{"hangs", "panic: test timed out after 1m0s\n", failed, Caught},
		{"too slow to say", "", context.DeadlineExceeded, Broken},
		{"does not build", "FAIL\tx [build failed]\n", failed, DoesNotCompile},
		{"cannot load", "FAIL\tx [setup failed]\n", failed, DoesNotCompile},
		{"nothing known", "go: no such flag\n", failed, Broken},
		{"no go", "", exec.ErrNotFound, Broken},
	} {
		if got := judge(tt.output, tt.err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}
