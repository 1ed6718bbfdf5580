package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// Verdict on one mutation.
type Verdict string

// Verdicts. Caught is the only good one.
const (
	Caught         Verdict = "caught"
	Survived       Verdict = "survived"
	DoesNotCompile Verdict = "does-not-compile"
	Stale          Verdict = "stale"
	Broken         Verdict = "broken"
)

// baseline runs the named tests without a fault: one that fails, or that does
// not run at all, would count every fault as caught.
func baseline(ctx context.Context, root string, mutations []Mutation, limit time.Duration) error {
	seen := map[string]bool{}
	for _, m := range mutations {
		key := m.Package + " " + m.Run
		if seen[key] {
			continue
		}
		seen[key] = true
		output, err := goTest(ctx, root, m, "", limit)
		if err != nil {
			return fmt.Errorf("without any fault, -run %s of %s fails: %w\n%s", m.Run, m.Package, err, tail(output))
		}
		if strings.Contains(output, "no tests to run") || strings.Contains(output, "[no test files]") {
			return fmt.Errorf("%s has no test that matches -run %s", m.Package, m.Run)
		}
	}
	return nil
}

// try one fault; detail explains every verdict but Caught.
func try(ctx context.Context, root string, m Mutation, limit time.Duration) (verdict Verdict, detail string) {
	overlay, clean, err := writeOverlay(root, m)
	if err != nil {
		if errors.Is(err, errStale) {
			return Stale, err.Error()
		}
		return Broken, err.Error()
	}
	defer clean()
	output, err := goTest(ctx, root, m, overlay, limit)
	return judge(output, err), tail(output)
}

// judge reads the outcome of go test.
func judge(output string, err error) Verdict {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return Survived
	case errors.Is(err, context.DeadlineExceeded):
		// Not a test that hangs, which hangTimeout ends: the compiler or the
		// machine was too slow, and nobody knows what the tests would say.
		return Broken
	case !errors.As(err, &exit):
		return Broken
	case buildFailed.MatchString(output):
		return DoesNotCompile
	case testFailed.MatchString(output):
		return Caught
	default:
		return Broken
	}
}

var (
	buildFailed = regexp.MustCompile(`(?m)\[(build|setup) failed\]$`)
	testFailed  = regexp.MustCompile(`(?m)^(\s*--- FAIL: |panic: |fatal error: |FAIL\s+\S+\s+[0-9.]+s$)`)
)

// writeOverlay writes the faulty copy and the overlay that puts it in the
// file's place for one go command.
func writeOverlay(root string, m Mutation) (overlay string, clean func(), err error) {
	file, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		return "", nil, fmt.Errorf("find %s: %w", m.File, err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", errStale, err)
	}
	mutated, err := m.apply(string(source))
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "mutate-*")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the copy: %w", err)
	}
	clean = func() { _ = os.RemoveAll(dir) }
	faulty := filepath.Join(dir, filepath.Base(file))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: faulty}})
	if err != nil {
		clean()
		return "", nil, fmt.Errorf("encode the overlay: %w", err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := errors.Join(os.WriteFile(faulty, []byte(mutated), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		clean()
		return "", nil, fmt.Errorf("write the copy: %w", err)
	}
	return overlay, clean, nil
}

// hangTimeout is when a test that the fault made hang counts as failed.
const hangTimeout = time.Minute

// goTest runs the named tests; its process group ends with the limit of time.
func goTest(ctx context.Context, root string, m Mutation, overlay string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{"test", "-vet=off", "-failfast", "-timeout", hangTimeout.String(), "-run", m.Run}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, m.Package)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		err = fmt.Errorf("go test: %w", ctxErr)
	}
	return output.String(), err
}

func tail(output string) string {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	if len(lines) > 25 {
		lines = lines[len(lines)-25:]
	}
	return "    " + strings.Join(lines, "\n    ")
}
