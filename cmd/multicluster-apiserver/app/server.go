package app

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	clientgocache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubeoptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
	"github.com/isthmus-dev/isthmus/pkg/registry/inert"
	"github.com/isthmus-dev/isthmus/pkg/registry/pki"
	"github.com/isthmus-dev/isthmus/pkg/registry/subresources"
)

// server is the endpoint: kube-apiserver's own chain with the router inside,
// and what runs beside it.
type server struct {
	options  *Options
	files    pki.Files
	chain    *aggregator.APIAggregator
	loopback *rest.Config
	serving  []byte // CA bundle of the serving certificate
	system   *system

	background sync.WaitGroup
	cancel     context.CancelFunc
}

func newServer(ctx context.Context, completed kubeoptions.CompletedOptions, o *Options, files pki.Files) (*server, error) {
	informerName, err := clientgocache.NewInformerName("multicluster-apiserver")
	if err != nil {
		return nil, fmt.Errorf("name the informers: %w", err)
	}
	completed.InformerName = informerName
	config, err := kubeapiserver.NewConfig(completed)
	if err != nil {
		return nil, fmt.Errorf("configure the control plane: %w", err)
	}
	generic := config.KubeAPIs.ControlPlane.Generic
	s := &server{options: o, files: files, loopback: generic.LoopbackClientConfig, cancel: func() {}}
	if s.serving, err = servingBundle(o, files); err != nil {
		return nil, err
	}
	gatewayCA, err := pool(files.Cert(pki.GatewayCA))
	if err != nil {
		return nil, err
	}
	if s.system, err = newSystem(ctx, o, files, config); err != nil {
		return nil, err
	}
	build := config.Aggregator.GenericConfig.BuildHandlerChainFunc
	config.Aggregator.GenericConfig.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		api = subresources.Handler(api, c.Serializer)
		return proxy.MarkLoopback(build(s.system.router.Wrap(api), c), s.loopback.BearerToken, gatewayCA)
	}
	custom := config.ApiExtensions.GenericConfig
	custom.AggregatedDiscoveryGroupManager = subresources.Manager(custom.AggregatedDiscoveryGroupManager)
	if err := inert.Webhooks(config.KubeAPIs.ControlPlane.VersionedInformers); err != nil {
		return nil, err
	}
	if err := s.addHooks(config); err != nil { //nolint:contextcheck // the hook gets the server's own context
		return nil, err
	}
	done, err := config.Complete()
	if err != nil {
		return nil, fmt.Errorf("complete the control plane: %w", err)
	}
	if s.chain, err = kubeapiserver.CreateServerChain(done); err != nil {
		return nil, fmt.Errorf("build the server chain: %w", err)
	}
	return s, inert.APIServices(s.chain.APIRegistrationInformers)
}

// addHooks starts our own parts once the chain serves its loopback clients.
func (s *server) addHooks(config *kubeapiserver.Config) error {
	generic := config.Aggregator.GenericConfig
	if err := generic.AddPostStartHook("isthmus-system", func(hook genericapiserver.PostStartHookContext) error {
		ctx, cancel := context.WithCancel(hook)
		s.cancel = cancel
		s.background.Go(func() {
			if err := s.system.run(ctx, s.serving); err != nil && ctx.Err() == nil {
				klog.ErrorS(err, "A part of the endpoint has failed, stopping")
				// A half-running endpoint would answer with a part of the truth.
				os.Exit(1)
			}
		})
		return nil
	}); err != nil {
		return fmt.Errorf("add the start hook: %w", err)
	}
	generic.ReadyzChecks = append(generic.ReadyzChecks, s.system.readyChecks()...)
	return nil
}

func (s *server) run(ctx context.Context) error {
	prepared, err := s.chain.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare the server: %w", err)
	}
	o := s.options.Kube.SecureServing
	url := endpointURL(o.BindAddress, o.BindPort)
	if err := writeAdminKubeconfig(s.options.DataDir, url, s.serving, s.files); err != nil {
		return err
	}
	klog.InfoS("Serving", "url", url, "kubeconfig", s.options.DataDir+"/"+AdminKubeconfig)
	return prepared.Run(ctx)
}

// finish stops what runs beside the chain, waiting at most the given time.
func (s *server) finish(within time.Duration) {
	s.cancel()
	done := make(chan struct{})
	go func() { s.background.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(within):
		klog.InfoS("Background work did not stop in time", "within", within)
	}
}

// servingBundle is what a client must trust to reach the endpoint.
func servingBundle(o *Options, files pki.Files) ([]byte, error) {
	path := o.Kube.SecureServing.ServerCert.CertKey.CertFile
	if path == files.Cert(pki.Server) {
		path = files.Cert(pki.ServerCA)
	}
	bundle, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the serving certificate's authority: %w", err)
	}
	return bundle, nil
}

func pool(path string) (*x509.CertPool, error) {
	p, err := cert.NewPool(path)
	if err != nil {
		return nil, fmt.Errorf("read the authority %s: %w", path, err)
	}
	return p, nil
}
