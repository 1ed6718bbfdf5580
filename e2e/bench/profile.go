package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const profileSeconds = 10

// profiles keeps a CPU profile of the gateway for the forms that cost most,
// and one of its heap.
func (r *run) profiles(ctx context.Context) error {
	if r.Profiles == "" || r.fleet.metrics == "" {
		return nil
	}
	if err := os.MkdirAll(r.Profiles, 0o755); err != nil {
		return fmt.Errorf("folder of profiles: %w", err)
	}
	if err := r.fetch(ctx, "/debug/pprof/heap?gc=1", "heap"); err != nil {
		return err
	}
	for _, f := range forms() {
		name, ok := map[string]string{"JSON": "json", "JSON gzip": "json-gzip", "protobuf": "protobuf", "Table": "table"}[f.name]
		if !ok {
			continue
		}
		if err := r.profileOf(ctx, f, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) profileOf(ctx context.Context, f form, name string) error {
	ended := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		client := r.fleet.product.client()
		defer client.CloseIdleConnections()
		for {
			select {
			case <-ended:
				failed <- nil
				return
			default:
			}
			if _, err := r.fleet.product.read(ctx, client, f, false); err != nil {
				failed <- err
				return
			}
		}
	}()
	err := r.fetch(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds), name)
	close(ended)
	return errors.Join(err, <-failed)
}

// fetch keeps what the gateway and the endpoint before it profile meanwhile.
func (r *run) fetch(ctx context.Context, path, name string) error {
	ctx, cancel := context.WithTimeout(ctx, (profileSeconds+30)*time.Second)
	defer cancel()
	gateway := target{name: gatewayName, base: "http://" + r.fleet.metrics}
	var wait sync.WaitGroup
	var errs [2]error
	for i, t := range []target{gateway, r.fleet.product} {
		wait.Go(func() { errs[i] = keep(ctx, t, path, filepath.Join(r.Profiles, name+"."+t.name+".pprof")) })
	}
	wait.Wait()
	return errors.Join(errs[:]...)
}

func keep(ctx context.Context, t target, path, file string) error {
	client := t.client()
	defer client.CloseIdleConnections()
	answer, err := t.get(ctx, client, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("profile of %s: %w", t.name, err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("profile of %s: %w", t.name, err)
	}
	return nil
}
