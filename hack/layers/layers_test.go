package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/isthmus-dev/isthmus/"

// layers in which a package may import from its own and those that it names.
var layers = map[string][]string{
	"cmd":            {"pkg/registry", "pkg/proxy", "pkg/federation", "pkg/cache"},
	"pkg/registry":   {"pkg/proxy", "pkg/federation", "pkg/cache"},
	"pkg/proxy":      {"pkg/cache"},
	"pkg/cache":      nil,
	"pkg/federation": nil,
}

// decisions are packages of pure functions.
var decisions = []string{
	"adopt", "aggregate", "dependencies", "intent", "marks", "override", "placement", "prune", "retain", "revision",
}

// clients and clocks that a decision must not have.
var (
	clients = []string{"k8s.io/client-go/kubernetes", "k8s.io/client-go/dynamic", "k8s.io/client-go/rest", "k8s.io/client-go/tools/cache", "net/http"}
	clocks  = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}
)

type goPackage struct {
	Dir, ImportPath  string
	GoFiles, Imports []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=Dir,ImportPath,GoFiles,Imports", "./cmd/...", "./pkg/...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 30 {
		t.Fatalf("only %d packages found", len(all))
	}
	return all
}

func layerOf(path string) string {
	for layer := range layers {
		if path == layer || strings.HasPrefix(path, layer+"/") {
			return layer
		}
	}
	return ""
}

func TestImportsFollowTheLayers(t *testing.T) {
	for _, p := range packages(t) {
		from := layerOf(strings.TrimPrefix(p.ImportPath, module))
		if from == "" {
			t.Errorf("%s is in no layer", p.ImportPath)
		}
		for _, i := range p.Imports {
			rest, ours := strings.CutPrefix(i, module)
			if to := layerOf(rest); ours && to != from && !slices.Contains(layers[from], to) {
				t.Errorf("%s imports %s", p.ImportPath, i)
			}
		}
	}
}

func TestDecisionsArePure(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		name, ok := strings.CutPrefix(p.ImportPath, module+"pkg/federation/")
		if !ok || !slices.Contains(decisions, name) {
			continue
		}
		found++
		for _, i := range p.Imports {
			for _, client := range clients {
				if i == client || strings.HasPrefix(i, client+"/") {
					t.Errorf("%s imports %s", name, i)
				}
			}
		}
		for _, file := range p.GoFiles {
			checkClocks(t, filepath.Join(p.Dir, file))
		}
	}
	if found != len(decisions) {
		t.Errorf("%d of %d packages found", found, len(decisions))
	}
}

func checkClocks(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, s.Sel.Name) {
			t.Errorf("%s: time.%s", files.Position(s.Pos()), s.Sel.Name)
		}
		return true
	})
}
