// Package kubelet serves the streams of a member's Pods the way a kubelet does,
// with processes of this machine in the part of containers.
//
//	kube-apiserver -> TLS, client certificate -> Server
//	  /containerLogs -> log files of the member and the container
//	  /exec, /run    -> a process in the container's folder
//	  /attach        -> the log as it grows
//	  /portForward   -> port 7 echoes, every other port speaks HTTP
//	  /metrics, ...  -> kwok, which plays the rest of the node
//
// Which Pods exist and how their containers are is asked of the API for every
// request, so that the answers are those of a kubelet that runs them.
package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Options say whose kubelet it is.
type Options struct {
	Cluster string
	// Dir holds all.log, which is part of every container's log, and a folder
	// for each Pod by its UID.
	Dir  string
	Pods PodGetter
	// Upstream answers the node's other paths (metrics, stats); nil for none.
	Upstream http.Handler
	// Confine is the command that runs its arguments with the folder named
	// first as their /tmp (see Confine); empty runs them as they are.
	Confine []string
}

// PodGetter finds a Pod; an error that wraps ErrNotFound says there is none.
type PodGetter interface {
	Get(ctx context.Context, namespace, name string) (*corev1.Pod, error)
}

// Server is the kubelet of all nodes of one member.
type Server struct {
	opts Options
	web  *podWeb

	mu     sync.Mutex
	pulses map[string]*pulse // by path of the log

	processes sync.WaitGroup
}

// New returns a server; Close ends what it started.
func New(opts Options) *Server {
	s := &Server{opts: opts, pulses: map[string]*pulse{}}
	s.web = newPodWeb(opts.Cluster)
	return s
}

// Close stops the Pods' HTTP server and waits for processes, whose requests
// must have been cancelled.
func (s *Server) Close() error {
	s.processes.Wait()
	return s.web.close()
}

// Handler routes the kubelet's paths. Every request but /healthz must come
// with a verified certificate of the group system:masters.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok")) // a client that is gone needs no answer
	})
	guarded := func(pattern string, serve http.HandlerFunc) { mux.Handle(pattern, mastersOnly(serve)) }
	guarded("GET /containerLogs/{namespace}/{pod}/{container}", s.serveLogs)
	for _, uid := range []string{"", "{uid}/"} {
		guarded("/exec/{namespace}/{pod}/"+uid+"{container}", s.serveExec)
		guarded("/attach/{namespace}/{pod}/"+uid+"{container}", s.serveAttach)
		guarded("POST /run/{namespace}/{pod}/"+uid+"{container}", s.serveRun)
	}
	guarded("/portForward/{namespace}/{pod}", s.servePortForward)
	guarded("/portForward/{namespace}/{pod}/{uid}", s.servePortForward)
	if s.opts.Upstream != nil {
		for _, path := range []string{"/metrics", "/metrics/", "/stats/", "/pods"} {
			guarded("GET "+path, s.opts.Upstream.ServeHTTP)
		}
	}
	return mux
}

// mastersOnly stands for the kubelet's authorization: a certificate of the
// member's CA alone, which any user may hold, does not open a container.
func mastersOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		subject := r.TLS.PeerCertificates[0].Subject
		if !slices.Contains(subject.Organization, "system:masters") {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource=proxy)", subject.CommonName, strings.ToLower(r.Method)), http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// container is one container of a Pod that exists.
type container struct {
	pod  *corev1.Pod
	name string
	dir  string // its own folder
}

// container finds the one that the path names. Its folder goes by the Pod's
// UID, so that another Pod of the same name starts empty.
func (s *Server) container(ctx context.Context, r *http.Request) (*container, error) {
	pod, err := s.pod(ctx, r)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("container")
	if !hasContainer(pod, name) {
		return nil, fmt.Errorf("container %q in pod %q: %w", name, pod.Name, ErrNotFound)
	}
	return &container{pod: pod, name: name, dir: filepath.Join(s.opts.Dir, string(pod.UID), name)}, nil
}

func (s *Server) pod(ctx context.Context, r *http.Request) (*corev1.Pod, error) {
	pod, err := s.opts.Pods.Get(ctx, r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		return nil, err
	}
	if uid := r.PathValue("uid"); uid != "" && pod.UID != types.UID(uid) {
		return nil, fmt.Errorf("pod %q with UID %q: %w", pod.Name, uid, ErrNotFound)
	}
	// The UID names a folder.
	if uid := string(pod.UID); uid == "" || uid != filepath.Base(uid) || !filepath.IsLocal(uid) {
		return nil, fmt.Errorf("pod %q has an unusable UID %q", pod.Name, uid)
	}
	return pod, nil
}

func writeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if errors.Is(err, ErrNotFound) {
		code = http.StatusNotFound
	} else if errors.Is(err, ErrBadRequest) {
		code = http.StatusBadRequest
	}
	http.Error(w, err.Error(), code)
}

// shutdownGrace is how long streams may take to end with the server.
const shutdownGrace = 2 * time.Second

// Serve answers on the listener until the context ends; its end cancels every
// stream and ends every process.
func (s *Server) Serve(ctx context.Context, l net.Listener, config *tls.Config) error {
	server := &http.Server{
		Handler: s.Handler(), TLSConfig: config, ReadHeaderTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: endWithConnection,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(watchedListener{l}, "", "") }()
	klog.FromContext(ctx).Info("Serving", "address", l.Addr().String(), "cluster", s.opts.Cluster)
	select {
	case err := <-failed:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := server.Shutdown(stop); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("shut down: %w", err)
	}
	return s.Close()
}
