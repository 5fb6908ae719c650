/** The lines of layers.ts for servers and their boot parameters. */
type Layers = Readonly<Record<string, readonly string[]>>;

export const serverLayers = ({
  database,
  rest,
  subsystem,
}: Record<'database' | 'rest' | 'subsystem', readonly string[]>): Layers => ({
  // Servers boot from platforms, which are documents.
  'control/servers': [
    ...database,
    'platform/moray',
    'platform/dns',
    'protocol',
    'protocol/api',
    'control/documents/document-bucket.ts',
    'control/request-errors.ts',
  ],
  'control/servers/routes': [...rest, 'control/access', 'control/servers'],
  'control/servers/subsystem.ts': [
    ...database,
    ...subsystem,
    'platform/moray',
    'control/servers',
    'control/servers/routes',
  ],
});
