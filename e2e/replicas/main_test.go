// Package replicas runs two gateways behind one endpoint and ends, freezes and
// cuts off the one that leads:
//
//	TestMain -> m1, m2 (package lab) -> the endpoint -> two gateways
//	tests    -> 50 informers and writes through the endpoint, the gateways and
//	            the members -> the leading gateway fails -> compared with the members
//
// The gateways reach one another and the endpoint through relays that can be
// cut. ISTHMUS_E2E_PATIENCE=4 multiplies the limits, for a machine that is busy
// with other work.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab"
	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// gateways by the names that package lab gives them.
var gateways = []string{"cluster-gateway", "cluster-gateway-2"}

// world is what all tests share.
var world struct {
	labtest.World
	listen map[string]string     // address of a gateway
	peers  map[string]*lab.Proxy // by which the others reach it
	up     map[string]*lab.Proxy // by which it reaches the endpoint
}

var patience time.Duration = 1

// within is a limit on this machine.
func within(d time.Duration) time.Duration { return d * patience }

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv("ISTHMUS_E2E_PATIENCE")); err == nil && n > 0 {
		patience = time.Duration(n)
	}
	os.Exit(labtest.Main(m, &world.World, labtest.WorldOptions{
		Name:    "replicas",
		Members: []lab.Options{{Name: "m1"}, {Name: "m2"}},
		Join:    []string{"m1", "m2"},
		After:   startGateways,
	}))
}

// startGateways begins anew with two gateways: the certificates are there now.
func startGateways(w *labtest.World) error {
	world.listen, world.peers, world.up = map[string]string{}, map[string]*lab.Proxy{}, map[string]*lab.Proxy{}
	var addresses string
	var flags [][]string
	for _, name := range gateways {
		address, err := freeAddress()
		if err != nil {
			return err
		}
		world.listen[name] = address
		var errs [2]error
		world.peers[name], errs[0] = lab.NewProxy(address)
		world.up[name], errs[1] = lab.NewProxy(w.System.Address())
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		addresses += "," + address
		flags = append(flags, []string{
			"--certificates", w.System.DataDir() + "/pki", "--endpoint", "https://" + world.up[name].Addr(),
			"--listen", address, "--advertise", world.peers[name].Addr(), "--metrics-listen", "",
		})
	}
	if err := w.System.StopProcess("multicluster-apiserver", 15*time.Second); err != nil {
		return err
	}
	options := w.SystemOptions(func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	options.Flags = []string{"--gateway", addresses[1:]}
	options.GatewayFlags, options.MoreGateways = flags[0], flags[1:]
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute) // a build of the gateway may be in it
	defer cancel()
	system, err := lab.StartSystem(ctx, options)
	if err != nil {
		return err
	}
	w.System = system
	return nil
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
