{{/* The container of a tap. Takes a dict: root, sidecar (bool). */}}
{{- define "streamgauge.tapContainer" -}}
{{- $tap := .root.Values.tap -}}
name: streamgauge-tap
image: {{ include "streamgauge.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
{{- if .sidecar }}
# A native sidecar: it starts before the pod's containers, and ends after them.
restartPolicy: Always
{{- end }}
args: [tap]
env:
  {{- $upstreams := list }}
  {{- range $name, $url := $tap.upstreams }}
  {{- $upstreams = append $upstreams (printf "%s=%s" $name $url) }}
  {{- end }}
  - {name: STREAMGAUGE_UPSTREAM, value: {{ join "," $upstreams | required "tap.upstreams is missing: NAME: URL" | quote }}}
  - {name: STREAMGAUGE_LISTEN, value: "{{ .root.Values.bindAddress }}:8080"}
  {{- include "streamgauge.adminEnv" .root | nindent 2 }}
  - {name: STREAMGAUGE_DATA_DIR, value: /data/tap}
  - {name: STREAMGAUGE_DRAIN_TIMEOUT, value: {{ $tap.drainSeconds | int64 | quote }}}
  {{- include "streamgauge.kafkaEnv" .root | nindent 2 }}
  {{- if $tap.tlsSecret }}
  - {name: STREAMGAUGE_TLS_CERTIFICATE, value: /run/secrets/tls/tls.crt}
  - {name: STREAMGAUGE_TLS_KEY, value: /run/secrets/tls/tls.key}
  {{- end }}
  {{- include "streamgauge.settingsEnv" $tap.settings | nindent 2 }}
  {{- with $tap.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: llm, containerPort: 8080}
  - {name: admin, containerPort: 9464}
{{- include "streamgauge.probes" .root | nindent 0 }}
{{- if not .sidecar }}
lifecycle:
  # Until every balancer has taken the pod out of service, new requests are served: after SIGTERM they are refused.
  preStop: {exec: {command: [sleep, {{ $tap.preStopSeconds | int64 | quote }}]}}
{{- end }}
securityContext: {{- include "streamgauge.containerSecurity" . | nindent 2 }}
resources: {{- toYaml $tap.resources | nindent 2 }}
volumeMounts: {{- include "streamgauge.tapMounts" . | nindent 2 }}
{{- end -}}

{{- define "streamgauge.tapMounts" -}}
- {name: streamgauge-data, mountPath: /data}
- {name: streamgauge-tmp, mountPath: /tmp}
{{- include "streamgauge.adminMounts" .root }}
{{- include "streamgauge.kafkaMounts" .root }}
{{- if .root.Values.tap.tlsSecret }}
- {name: tls, mountPath: /run/secrets/tls, readOnly: true}
{{- end }}
{{- with .root.Values.tap.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Puts the key of the digests into the data directory, where the tap would make its own. Takes a dict: root. */}}
{{- define "streamgauge.tapKeyContainer" -}}
name: streamgauge-key
image: {{ include "streamgauge.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [install, -D, --mode=0600, /run/secrets/installation-key/key, /data/tap/key]
securityContext: {{- include "streamgauge.containerSecurity" . | nindent 2 }}
resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
volumeMounts:
  - {name: streamgauge-data, mountPath: /data}
  - {name: installation-key, mountPath: /run/secrets/installation-key, readOnly: true}
{{- end -}}

{{/* The volumes of a tap, but for that of its data. Takes a dict: root, mode (of the files of Secrets). */}}
{{- define "streamgauge.tapVolumes" -}}
- name: streamgauge-tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- include "streamgauge.adminVolumes" . }}
{{- include "streamgauge.kafkaVolumes" . }}
{{- with .root.Values.tap }}
{{- if .tlsSecret }}
- name: tls
  secret: {secretName: {{ .tlsSecret }}, defaultMode: {{ $.mode }}}
{{- end }}
{{- if .installationKeySecret.name }}
- name: installation-key
  secret:
    secretName: {{ .installationKeySecret.name }}
    items: [{key: {{ .installationKeySecret.key }}, path: key}]
    defaultMode: {{ $.mode }}
{{- end }}
{{- with .extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}
