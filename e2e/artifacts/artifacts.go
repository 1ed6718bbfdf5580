// Package artifacts builds the binaries of a real member cluster from their Go
// modules and keeps them in a cache folder named by their content key.
//
//	e2e/multicall      -> kubernetes (kube-apiserver, ..., kubectl are links to it)
//	e2e (tool)         -> etcd
//	e2e/kwok           -> kwok, and the stage files of its module
//	e2e/metricsserver  -> metrics-server
//	e2e/conformance/suite -> Kubernetes' end-to-end suite and ginkgo
//	e2e/clients/suite  -> helm, controller-runtime's tests
//	e2e/clients/javascript -> @kubernetes/client-node, by npm
//	e2e/skew/old       -> the control plane of an older Kubernetes
//	cmd/*              -> the product, always built from the working tree
//
// A binary is built under a temporary name and renamed, so a folder never holds
// a torn file, and a lock keeps two builders from doing the same work twice.
package artifacts

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// KubernetesVersion is the version that the member's binaries report.
const KubernetesVersion = "v1.37.2"

// ErrNoRoot says that no folder of the product's sources was found.
var ErrNoRoot = errors.New("the sources of isthmus (a folder with e2e/multicall) were not found; run inside the repository or set ISTHMUS_ROOT")

// Set is a folder of built binaries.
type Set struct {
	// Root is the repository.
	Root string
	// Dir holds the binaries of the members.
	Dir string
	// ProductDir holds the binaries of the product.
	ProductDir string
}

// Path is where the binary with that name lies once it is built.
func (s Set) Path(name string) string { return filepath.Join(s.Dir, name) }

// Product is where a binary of the product lies once it is built.
func (s Set) Product(name string) string { return filepath.Join(s.ProductDir, name) }

// StagesDir holds the kwok stages and metrics that members use.
func (s Set) StagesDir() string { return filepath.Join(s.Dir, "kwok-config") }

// HasProduct reports whether the product's binary was built.
func (s Set) HasProduct(name string) bool {
	_, err := os.Stat(s.Product(name))
	return err == nil
}

// Locate names the folders without building anything. The base folder of the
// members' binaries is .cache/artifacts in the repository, or
// $ISTHMUS_ARTIFACTS.
func Locate() (Set, error) {
	root, err := findRoot()
	if err != nil {
		return Set{}, err
	}
	base := os.Getenv("ISTHMUS_ARTIFACTS")
	if base == "" {
		base = filepath.Join(root, ".cache", "artifacts")
	}
	if base, err = filepath.Abs(base); err != nil {
		return Set{}, fmt.Errorf("artifacts folder: %w", err)
	}
	key, err := versionKey(filepath.Join(root, "e2e"))
	if err != nil {
		return Set{}, err
	}
	return Set{
		Root: root,
		Dir:  filepath.Join(base, KubernetesVersion+"-"+key),
		// The base may be shared by several working trees.
		ProductDir: filepath.Join(root, ".cache", "artifacts", "product"),
	}, nil
}

func findRoot() (string, error) {
	if root := os.Getenv("ISTHMUS_ROOT"); root != "" {
		if isRoot(root) {
			return filepath.Abs(root)
		}
		return "", fmt.Errorf("ISTHMUS_ROOT=%s: %w", root, ErrNoRoot)
	}
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for {
			if isRoot(dir) {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir {
				break
			}
			dir = parent
		}
	}
	return "", ErrNoRoot
}

func isRoot(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "e2e", "multicall", "main.go"))
	return err == nil
}

// versionKey digests everything that decides what the binaries are. Only the
// lines of go.mod that choose versions count, so that an edit elsewhere in it
// does not relink kubernetes.
func versionKey(e2e string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, "layout 1", runtime.Version(), runtime.GOOS, runtime.GOARCH, KubernetesVersion)
	main, err := os.ReadFile(filepath.Join(e2e, "multicall", "main.go"))
	if err != nil {
		return "", fmt.Errorf("version key: %w", err)
	}
	h.Write(main)
	for _, mod := range []string{"go.mod", "kwok/go.mod", "metricsserver/go.mod"} {
		data, err := os.ReadFile(filepath.Join(e2e, mod))
		if err != nil {
			return "", fmt.Errorf("version key: %w", err)
		}
		fmt.Fprintln(h, mod)
		for line := range strings.Lines(string(data)) {
			line, _, _ = strings.Cut(line, "//")
			fields := strings.Fields(line)
			if len(fields) > 0 && fields[0] == "require" {
				fields = fields[1:]
			}
			chooses := len(fields) > 1 && (strings.HasPrefix(fields[len(fields)-1], "v") || slices.Contains(fields, "=>"))
			if chooses {
				fmt.Fprintln(h, strings.Join(fields, " "))
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}
