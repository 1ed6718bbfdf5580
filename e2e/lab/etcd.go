package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"syscall"

	"github.com/isthmus-dev/isthmus/e2e/artifacts"
)

// Etcd is a store of its own for several replicas of the endpoint.
type Etcd struct {
	url string
	group
}

// StartEtcd runs an etcd in a folder, reached by clients at HOST:PORT.
func StartEtcd(ctx context.Context, dir, address string, daemon bool, logf Logf) (*Etcd, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	set, err := artifacts.Locate()
	if err != nil {
		return nil, err
	}
	peerAddress, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	peer := "http://" + peerAddress
	e := &Etcd{"http://" + address, group{label: "etcd", dir: dir, daemon: daemon, logf: logf}}
	e.reset()
	e.add("etcd", set.Path("etcd"), []string{
		"--data-dir=" + filepath.Join(dir, "data"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + e.url, "--advertise-client-urls=" + e.url,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		"--auto-compaction-mode=periodic", "--auto-compaction-retention=1h",
	})
	if err := e.Restart(ctx); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// URL for clients.
func (e *Etcd) URL() string { return e.url }

// Kill ends it with SIGKILL.
func (e *Etcd) Kill() error { return e.components["etcd"].stop(0) }

// Freeze stops it in its tracks.
func (e *Etcd) Freeze() error { return e.components["etcd"].signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (e *Etcd) Thaw() error { return e.components["etcd"].signal(syscall.SIGCONT) }

// Restart starts it unless it runs, and waits until it answers.
func (e *Etcd) Restart(ctx context.Context) error {
	if err := e.components["etcd"].start(); err != nil {
		return err
	}
	return e.poll(ctx, "its health", "etcd", func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+"/health", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			var failed *url.Error
			if errors.As(err, &failed) {
				return failed.Err
			}
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // its status is enough
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("/health answers %d", resp.StatusCode)
		}
		return nil
	})
}

// Stop ends it; the folder stays.
func (e *Etcd) Stop() error { return StopDir(e.dir) }

// FreeAddress is HOST:PORT on loopback that nobody listens on.
func FreeAddress() (string, error) {
	port, err := freePort(map[int]bool{})
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", fmt.Sprint(port)), nil
}
