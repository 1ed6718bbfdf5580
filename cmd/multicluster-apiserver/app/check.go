package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"k8s.io/apiserver/pkg/server/options"

	"github.com/isthmus-dev/isthmus/pkg/registry/fleet"
)

// check finds what is wrong with the flags before anything is started or
// written.
func (o *Options) check() error {
	errs := o.Kube.SecureServing.Validate()
	if _, err := fleet.ParseResources(o.MemberResources); err != nil {
		errs = append(errs, err)
	}
	pair := o.Kube.SecureServing.ServerCert.CertKey
	if pair.CertFile != "" || pair.KeyFile != "" {
		if _, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile); err != nil {
			errs = append(errs, fmt.Errorf("--tls-cert-file %s with --tls-private-key-file %s: %w", pair.CertFile, pair.KeyFile, err))
		}
	}
	return sentence(errs)
}

// sentence makes one line of everything that is wrong.
func sentence(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	parts := make([]string, len(errs))
	for i, err := range errs {
		parts[i] = err.Error()
	}
	return errors.New(strings.Join(parts, "; "))
}

// checkFolder wants a folder that can be written.
func checkFolder(dir string) error {
	probe, err := os.CreateTemp(dir, ".writable-")
	if err != nil {
		return fmt.Errorf("--data-dir %s cannot be written (%w): choose a folder that this user may write", dir, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// checkPort wants an address that is free. Where the listener will share its
// port, sharing it is no fault.
func checkPort(ctx context.Context, o *options.SecureServingOptionsWithLoopback) error {
	if o.Listener != nil || o.BindPort == 0 || o.PermitPortSharing || o.PermitAddressSharing {
		return nil
	}
	network := o.BindNetwork
	if network == "" {
		network = "tcp"
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, net.JoinHostPort(o.BindAddress.String(), fmt.Sprint(o.BindPort)))
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("--secure-port %d: another process listens there: stop it, or choose another port", o.BindPort)
	}
	return fmt.Errorf("--bind-address %s and --secure-port %d cannot be used: %w", o.BindAddress, o.BindPort, err)
}
