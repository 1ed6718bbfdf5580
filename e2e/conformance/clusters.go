package conformance

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/isthmus-dev/isthmus/e2e/lab"
)

// memberCount is how many clusters stand behind the endpoint.
const memberCount = 3

// Clusters are what the suite runs against: the endpoint over its members, or
// one plain cluster.
type Clusters struct {
	members []*lab.Member
	system  *lab.System
}

// StartPlain starts one cluster of the kind the members are.
func StartPlain(ctx context.Context, dir string, logf lab.Logf) (*Clusters, error) {
	c := &Clusters{}
	return c, c.startMembers(ctx, dir, 1, logf)
}

// StartEndpoint starts the members and the endpoint over them, with what it has
// by default. What it returns has to be stopped also after an error.
func StartEndpoint(ctx context.Context, dir string, logf lab.Logf) (*Clusters, error) {
	c := &Clusters{}
	if err := c.startMembers(ctx, dir, memberCount, logf); err != nil {
		return c, err
	}
	system, err := lab.StartSystem(ctx, lab.SystemOptions{
		Dir: filepath.Join(dir, "endpoint"), Logf: logf,
	})
	if err != nil {
		return c, err
	}
	c.system = system
	for _, m := range c.members {
		if err := system.Join(ctx, m.Name(), m.Kubeconfig()); err != nil {
			return c, fmt.Errorf("join %s: %w", m.Name(), err)
		}
	}
	return c, nil
}

func (c *Clusters) startMembers(ctx context.Context, dir string, n int, logf lab.Logf) error {
	c.members = make([]*lab.Member, n)
	errs := make([]error, n)
	var wait sync.WaitGroup
	for i := range c.members {
		wait.Go(func() {
			name := fmt.Sprintf("m%d", i+1)
			c.members[i], errs[i] = lab.Start(ctx, lab.Options{Name: name, Dir: filepath.Join(dir, name), Logf: logf})
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Kubeconfig leads to what the suite is run against.
func (c *Clusters) Kubeconfig() string {
	if c.system != nil {
		return c.system.Kubeconfig()
	}
	return c.members[0].Kubeconfig()
}

// Kubectl is the path of a kubectl of the members' version.
func (c *Clusters) Kubectl() string { return c.members[0].Artifacts().Path("kubectl") }

// Stop ends everything.
func (c *Clusters) Stop() error {
	var errs []error
	if c.system != nil {
		errs = append(errs, c.system.Stop())
	}
	for _, m := range c.members {
		if m != nil {
			errs = append(errs, m.Stop())
		}
	}
	return errors.Join(errs...)
}
