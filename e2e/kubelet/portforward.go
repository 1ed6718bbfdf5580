package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// echoPort is where a Pod repeats what it is told.
const echoPort = 7

func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request) {
	pod, err := s.pod(r.Context(), r)
	if err == nil && pod.Status.Phase != corev1.PodRunning {
		err = refuse("pod %q is not running: its phase is %s", pod.Name, pod.Status.Phase)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	opts, err := portforward.NewV4Options(r)
	if err != nil {
		writeError(w, fmt.Errorf("%w: %w", ErrBadRequest, err))
		return
	}
	portforward.ServePortForward(w, r, forwarder{r.Context(), s, pod}, pod.Name, string(pod.UID), opts,
		idleTimeout, creationTimeout, portforward.SupportedProtocols)
}

// forwarder leads to the ports of one Pod for one connection, whose end is
// that of its context: the streams' own contexts never end.
type forwarder struct {
	connection context.Context //nolint:containedctx // see above
	server     *Server
	pod        *corev1.Pod
}

// PortForward implements portforward.PortForwarder.
func (f forwarder) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	// A Pod that is gone has no network to connect to.
	pod, err := f.server.opts.Pods.Get(f.connection, f.pod.Namespace, f.pod.Name)
	if err == nil && pod.UID != f.pod.UID {
		err = fmt.Errorf("pod %q of UID %s: %w", f.pod.Name, f.pod.UID, ErrNotFound)
	}
	if err != nil {
		return err
	}
	if port == echoPort {
		_, _ = io.Copy(stream, stream) // a client that aborts is no failure of the Pod
		return nil
	}
	conn, err := f.server.web.dial(podAddress{f.pod.Namespace, f.pod.Name, port})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(f.connection, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	go func() {
		_, _ = io.Copy(conn, stream)
		_ = conn.CloseWrite() // the answer may still be on its way
	}()
	_, _ = io.Copy(stream, conn)
	return nil
}

// podAddress is a port of a Pod, as the address of a connection's server end.
type podAddress struct {
	namespace, name string
	port            int32
}

func (podAddress) Network() string  { return "pod" }
func (a podAddress) String() string { return fmt.Sprintf("%s/%s:%d", a.namespace, a.name, a.port) }

// podWeb is the HTTP server in all Pods. It is its own listener; connections
// are pairs of sockets that nobody else can reach.
type podWeb struct {
	server *http.Server
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
	served chan struct{}
}

func newPodWeb(cluster string) *podWeb {
	web := &podWeb{conns: make(chan net.Conn), closed: make(chan struct{}), served: make(chan struct{})}
	web.server = &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			address, ok := r.Context().Value(http.LocalAddrContextKey).(podAddress)
			if !ok {
				http.Error(w, "no such pod", http.StatusInternalServerError)
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			fmt.Fprintf(w, "hello from cluster %s, pod %s/%s, port %d\n", cluster, address.namespace, address.name, address.port)
		}),
	}
	go func() {
		defer close(web.served)
		_ = web.server.Serve(web) // ends by close only: Accept fails no other way
	}()
	return web
}

func (w *podWeb) Accept() (net.Conn, error) {
	select {
	case conn := <-w.conns:
		return conn, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *podWeb) Close() error {
	w.once.Do(func() { close(w.closed) })
	return nil
}

func (w *podWeb) Addr() net.Addr { return podAddress{} }

func (w *podWeb) close() error {
	err := w.server.Close()
	<-w.served
	return err
}

// podConn is the Pod's end of a connection.
type podConn struct {
	*net.UnixConn
	address podAddress
}

func (c podConn) LocalAddr() net.Addr { return c.address }

func (w *podWeb) dial(address podAddress) (*net.UnixConn, error) {
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	select {
	case w.conns <- podConn{theirs, address}:
		return ours, nil
	case <-w.closed:
		return nil, errors.Join(fmt.Errorf("connect to %s: %w", address, net.ErrClosed), ours.Close(), theirs.Close())
	}
}

func socketPair() (*net.UnixConn, *net.UnixConn, error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var conns [2]*net.UnixConn
	var errs error
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pod") //nolint:gosec // a descriptor is not negative
		conn, err := net.FileConn(file)
		errs = errors.Join(errs, err, file.Close()) // FileConn has a duplicate
		if unix, ok := conn.(*net.UnixConn); ok {
			conns[i] = unix
		}
	}
	if errs != nil {
		for _, conn := range conns {
			if conn != nil {
				errs = errors.Join(errs, conn.Close())
			}
		}
		return nil, nil, errs
	}
	return conns[0], conns[1], nil
}
