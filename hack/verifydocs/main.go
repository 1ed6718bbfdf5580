// Command verifydocs checks that links between the repository's documents lead
// somewhere: to a file that exists and, within Markdown, to a heading of it.
//
//	*.md -> links outside of code -> target file -> heading
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// skipped folders hold nothing of ours.
var skipped = map[string]bool{".git": true, ".cache": true, ".demo": true, "bin": true, "testdata": true, "node_modules": true}

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	count, err := verify(os.DirFS(*root))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d documents, every link leads somewhere\n", count)
}

// verify checks every document of the tree and returns how many there are.
func verify(tree fs.FS) (int, error) {
	var faults []error
	count := 0
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped[d.Name()]:
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		count++
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		for _, l := range links(string(text)) {
			if err := resolve(tree, name, l.target); err != nil {
				faults = append(faults, fmt.Errorf("%s:%d: %w", name, l.line, err))
			}
		}
		return nil
	})
	if err != nil {
		faults = append(faults, fmt.Errorf("walk the documents: %w", err))
	}
	if count == 0 {
		faults = append(faults, errors.New("no document was found"))
	}
	return count, errors.Join(faults...)
}

// resolve says why a link from a document leads nowhere.
func resolve(tree fs.FS, from, target string) error {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return nil
	}
	file, anchor, _ := strings.Cut(target, "#")
	to := from
	if file != "" {
		to = path.Join(path.Dir(from), file)
		if rooted, ok := strings.CutPrefix(file, "/"); ok {
			to = path.Clean(rooted)
		}
	}
	info, err := fs.Stat(tree, to)
	if err != nil {
		return fmt.Errorf("link %q: there is no %s", target, to)
	}
	if anchor == "" || info.IsDir() || path.Ext(to) != ".md" {
		return nil
	}
	text, err := fs.ReadFile(tree, to)
	if err != nil {
		return fmt.Errorf("link %q: %w", target, err)
	}
	if !headings(string(text))[anchor] {
		return fmt.Errorf("link %q: %s has no heading %q", target, to, anchor)
	}
	return nil
}
