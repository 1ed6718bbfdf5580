// Command verifymanifests checks rendered manifests and systemd units:
//
//	kustomize build DIR | verifymanifests -bin bin [UNIT.service ...]
//
// Objects must decode strictly into the types of the API they name, Pods must
// fit the restricted Pod Security Standard, labels of a workload must match its
// selector, and every flag must be one that the program has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

func main() {
	bin := flag.String("bin", "bin", "folder of the built programs")
	cmd := flag.String("cmd", "cmd", "folder of the programs' sources")
	flag.Parse()
	if err := run(os.Stdin, flag.Args(), *bin, *cmd); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(rendered io.Reader, units []string, bin, cmd string) error {
	text, err := io.ReadAll(rendered)
	if err != nil {
		return fmt.Errorf("read the manifests: %w", err)
	}
	objects, err := decode(text)
	if err != nil {
		return err
	}
	invocations, err := inspect(objects)
	if err != nil {
		return err
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			return fmt.Errorf("read the unit: %w", err)
		}
		i, err := execStart(filepath.Base(unit), string(text))
		if err != nil {
			return err
		}
		invocations = append(invocations, i)
	}
	helps := map[string]string{}
	var faults []error
	for _, i := range invocations {
		if _, ok := helps[i.program]; !ok {
			if helps[i.program], err = help(i.program, bin, cmd); err != nil {
				return err
			}
		}
		faults = append(faults, i.unknownFlags(helps[i.program]))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	fmt.Printf("%d objects and %d units are sound\n", len(objects), len(units))
	return nil
}

// help is what the program prints about its flags; empty where the program has
// no sources yet, so that nothing can be said.
func help(program, bin, cmd string) (string, error) {
	if _, err := os.Stat(filepath.Join(cmd, program, "main.go")); errors.Is(err, fs.ErrNotExist) {
		fmt.Printf("%s has no sources, its flags are not checked\n", program)
		return "", nil
	}
	path, err := filepath.Abs(filepath.Join(bin, program))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", program, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--help").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s --help ('make build' makes it): %w\n%s", path, err, out)
	}
	return string(out), nil
}
