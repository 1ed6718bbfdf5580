// Package labtest starts clusters and the product for a test and cleans up
// after it: the glue between package lab and package testing.
//
//	members := labtest.Members(t, 2)
//	system := labtest.System(t, lab.SystemOptions{}, members...)
package labtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

// startLimit covers a cold build of the binaries.
const startLimit = 15 * time.Minute

// Member starts a member in a temporary folder and stops it with the test. With
// -short the test is skipped. A failed test shows the end of each log.
func Member(t testing.TB, opts lab.Options) *lab.Member {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real cluster")
	}
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	opts.Logf = t.Logf
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	m, err := lab.Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		showLogs(t, m.Name(), m.Dir())
		if err := m.Stop(); err != nil {
			t.Errorf("stop member %s: %v", m.Name(), err)
		}
	})
	return m
}

// Members starts m1 ... mN.
func Members(t testing.TB, n int) []*lab.Member {
	t.Helper()
	members := make([]*lab.Member, n)
	for i := range members {
		members[i] = Member(t, lab.Options{Name: fmt.Sprintf("m%d", i+1)})
	}
	return members
}

// System starts the product and joins the members in that order.
func System(t testing.TB, opts lab.SystemOptions, members ...*lab.Member) *lab.System {
	t.Helper()
	if testing.Short() {
		t.Skip("starts the product")
	}
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	opts.Logf = t.Logf
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	s, err := lab.StartSystem(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		showLogs(t, "the endpoint", s.Dir())
		if err := s.Stop(); err != nil {
			t.Errorf("stop the endpoint: %v", err)
		}
	})
	for _, m := range members {
		if err := s.Join(ctx, m.Name(), m.Kubeconfig()); err != nil {
			t.Fatalf("join %s: %v", m.Name(), err)
		}
	}
	return s
}

// Proxy puts a proxy before a member and returns it with a kubeconfig that goes
// through it.
func Proxy(t testing.TB, m *lab.Member) (*lab.Proxy, string) {
	t.Helper()
	p, err := m.Proxy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	kubeconfig, err := m.KubeconfigVia(p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	return p, kubeconfig
}

// busy is how much longer things may take where other work uses the machine too.
const busy = 3

// Eventually repeats check until it returns nil, and fails the test with its
// last error after the limit, which is meant for a quiet machine. It is for what
// has to come about: how soon it has to, a test measures itself.
func Eventually(t testing.TB, limit time.Duration, check func(context.Context) error) {
	t.Helper()
	limit *= busy
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %s: %v", limit, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

const shownLines = 25

func showLogs(t testing.TB, name, dir string) {
	t.Helper()
	if !t.Failed() {
		return
	}
	paths, err := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
	if err != nil {
		t.Logf("logs of %s: %v", name, err)
		return
	}
	for _, path := range paths {
		if filepath.Base(path) == "audit.log" {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Logf("%s of %s: %v", filepath.Base(path), name, err)
			continue
		}
		lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		if len(lines) > shownLines {
			lines = lines[len(lines)-shownLines:]
		}
		t.Logf("the end of %s of %s:\n%s", filepath.Base(path), name, strings.Join(lines, "\n"))
	}
}
