package membership

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// connectThrough dials addresses through an HTTP proxy, with headers of its
// own in the CONNECT. net/http can send such headers too, but only from its
// own Transport, which the users of a rest.Config build for themselves.
func connectThrough(proxy *url.URL, header http.Header, dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialProxy(ctx, proxy, network, dial)
		if err != nil {
			return nil, fmt.Errorf("proxy %s: %w", proxy.Host, err)
		}
		tunnelled, err := connect(ctx, conn, proxy, header, address)
		if err != nil {
			return nil, fmt.Errorf("proxy %s: %w", proxy.Host, errorsAfterClose(err, conn))
		}
		return tunnelled, nil
	}
}

func dialProxy(ctx context.Context, proxy *url.URL, network string, dial dialFunc) (net.Conn, error) {
	port := proxy.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	conn, err := dial(ctx, network, net.JoinHostPort(proxy.Hostname(), port))
	if err != nil || proxy.Scheme != "https" {
		return conn, err
	}
	tlsConn := tls.Client(conn, &tls.Config{ServerName: proxy.Hostname(), MinVersion: tls.VersionTLS12})
	if err := tlsConn.HandshakeContext(ctx); err != nil {
		return nil, errorsAfterClose(err, conn)
	}
	return tlsConn, nil
}

func connect(ctx context.Context, conn net.Conn, proxy *url.URL, header http.Header, address string) (net.Conn, error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(10 * time.Second)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	req := &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: header.Clone(),
	}
	if u := proxy.User; u != nil && req.Header.Get("Proxy-Authorization") == "" {
		password, _ := u.Password()
		req.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("CONNECT: %w", err)
	}
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, req) //nolint:bodyclose // the connection is what follows the head
	if err != nil {
		return nil, fmt.Errorf("CONNECT: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("CONNECT answered %s", resp.Status)
	}
	if br.Buffered() > 0 {
		// The member does not speak before the TLS hello.
		return nil, fmt.Errorf("CONNECT answered %d bytes more than its head", br.Buffered())
	}
	return conn, conn.SetDeadline(time.Time{})
}

// errorsAfterClose closes a connection that failed; its own error adds
// nothing to err.
func errorsAfterClose(err error, conn net.Conn) error {
	if closeErr := conn.Close(); closeErr != nil {
		return fmt.Errorf("%w (and closing: %v)", err, closeErr) //nolint:errorlint // the first error is the cause
	}
	return err
}
